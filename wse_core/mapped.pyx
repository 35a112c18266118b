# cython: overflowcheck=False
"""Registers by address: what a load or store of 16 bits does beyond the memory of a PE.

The router's configuration of each color, the configuration of input queues and the cycle counter have addresses, which
a program may compute.  Layout of the words: docs/machine.md, "Registers by address"; `wse_core.encoding`, REG_*.
"""
from wse_core.emit cimport emit
from wse_core.queue cimport *
from wse_core.records cimport *
from wse_core.report cimport fault
from wse_core.route cimport pos_of, rx_of, tx_of
from wse_core.routing cimport set_route_word

cdef enum:
    KNOWN = 1 << 15         # of mapped_t.switches
    SETS = POSITION_MASK    # in a route register
    POSITIONS = 0xFFF       # in a switch register: positions 1 to 3
    KEPT = (1 << REG_SWAP | 1 << (REG_SWAP + 1) | 1 << REG_POINT)   # in a route register: nothing may change it


cdef inline uint32_t turned(uint32_t ports) noexcept nogil:
    # A set of directions in the other order of the two: N and S change places.
    return (ports & ~<uint32_t>12) | ((ports & 4) << 1) | ((ports & 8) >> 1)

cdef inline int named(uint32_t direction) noexcept nogil:
    # The direction of a number of registers, and back.
    return direction ^ 1 if direction == 2 or direction == 3 else direction

cdef inline uint64_t sets_at(uint64_t word, int k) noexcept nogil:
    return (word >> (POSITION_BITS * k)) & POSITION_MASK

cdef uint64_t with_sets(region_t* s, uint32_t cell, uint64_t t, int c, uint64_t word, int k, uint64_t bits,
                        bint valid) noexcept nogil:
    # A route word with other inputs and outputs of a position.
    emit(s, cell, t, EV_ROUTE, c, k, bits, 0)
    word = (word & ~(<uint64_t>POSITION_MASK << (POSITION_BITS * k))) | (bits << (POSITION_BITS * k))
    word &= ~(<uint64_t>1 << (RT_VALID + k))
    return word | <uint64_t>valid << (RT_VALID + k)

cdef inline int lowest(uint32_t ports) noexcept nogil:
    # The number in registers of the first direction of a set.
    cdef int k
    for k in range(N_PORTS):
        if (turned(ports) >> k) & 1:
            return k
    return REG_NONE

cdef uint16_t positions(ce_t* ce, int c, uint64_t word) noexcept nogil:
    # Positions 1 to 3 of a color as a switch register holds them: each has the inputs or the outputs of position 0.
    cdef mapped_t* m = mapped_of(ce)
    cdef uint32_t found = KNOWN
    cdef int k
    if m.switches[c] == 0:
        for k in range(1, N_POSITIONS):
            if not (word >> (RT_VALID + k)) & 1:
                found |= <uint32_t>REG_NONE << 4 * (k - 1)
            elif tx_of(word, k) == tx_of(word, 0):
                found |= <uint32_t>(lowest(rx_of(word, k)) | REG_INPUT) << 4 * (k - 1)
            else:
                found |= <uint32_t>lowest(tx_of(word, k)) << 4 * (k - 1)
        m.switches[c] = <uint16_t>found
    return m.switches[c] & POSITIONS

cdef uint16_t route_register(uint64_t word) noexcept nogil:
    cdef uint32_t found = turned(tx_of(word, 0)) | turned(rx_of(word, 0)) << N_PORTS
    found |= <uint32_t>((word >> (RT_SWAP + 1)) & 1) << REG_SWAP | <uint32_t>((word >> RT_SWAP) & 1) << (REG_SWAP + 1)
    found |= <uint32_t>((word >> RT_POP) & 3) << REG_POP | <uint32_t>((word >> RT_TEARDOWN) & 1) << REG_TEARDOWN
    return <uint16_t>found

cdef void write_route(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int c, uint32_t value) noexcept nogil:
    # The sets of position 0, pop mode, teardown; positions that share a side with position 0 follow it.
    cdef uint64_t word = s.f.route[c][cell], before = word, bits
    cdef uint32_t known = positions(ce, c, word), rx = turned((value >> N_PORTS) & ALL_PORTS)
    cdef uint32_t tx = turned(value & ALL_PORTS)
    cdef int k
    if (value ^ route_register(word)) & KEPT:
        fault(s, ce, cell, t, FAULT_PROGRAM, REG_ROUTES + c, c, D_REGISTER, value)
        return
    word = with_sets(s, cell, t, c, word, 0, rx | tx << N_PORTS, True)
    for k in range(1, N_POSITIONS):
        if (word >> (RT_VALID + k)) & 1:
            if (known >> 4 * (k - 1)) & REG_INPUT:
                bits = rx_of(word, k) | <uint64_t>tx << N_PORTS
            else:
                bits = rx | <uint64_t>tx_of(word, k) << N_PORTS
            if bits != sets_at(word, k):
                word = with_sets(s, cell, t, c, word, k, bits, True)
    word = (word & ~(<uint64_t>3 << RT_POP)) | <uint64_t>((value >> REG_POP) & 3) << RT_POP
    word = (word & ~(<uint64_t>1 << RT_TEARDOWN)) | <uint64_t>((value >> REG_TEARDOWN) & 1) << RT_TEARDOWN
    if (word ^ before) >> RT_TEARDOWN & 1:
        emit(s, cell, t, EV_TEARDOWN, c, (value >> REG_TEARDOWN) & 1, 0, 0)
    set_route_word(s, c, cell, word)
    s.waiting = 1

cdef void write_switch(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, int c, uint32_t value) noexcept nogil:
    # Positions 1 to 3, ring mode, the position of the moment.
    cdef uint64_t word = s.f.route[c][cell]
    cdef uint32_t direction, port, part
    cdef int k
    for k in range(1, N_POSITIONS):
        part = value >> 4 * (k - 1)
        direction = part & 7
        if direction >= REG_NONE:
            word = with_sets(s, cell, t, c, word, k, 0, False)
            continue
        port = <uint32_t>1 << named(direction)
        if part & REG_INPUT:
            word = with_sets(s, cell, t, c, word, k, port | <uint64_t>tx_of(word, 0) << N_PORTS, True)
        else:
            word = with_sets(s, cell, t, c, word, k, rx_of(word, 0) | <uint64_t>port << N_PORTS, True)
    mapped_of(ce).switches[c] = <uint16_t>(KNOWN | (value & POSITIONS))
    word = (word & ~(<uint64_t>1 << RT_RING)) | <uint64_t>((value >> REG_RING) & 1) << RT_RING
    word = (word & ~(<uint64_t>3 << RT_POS)) | <uint64_t>((value >> REG_POSITION) & 3) << RT_POS
    emit(s, cell, t, EV_SWITCH, c, (value >> REG_POSITION) & 3, 1, 0)
    set_route_word(s, c, cell, word)
    s.waiting = 1

cdef uint16_t switch_register(ce_t* ce, int c, uint64_t word) noexcept nogil:
    return <uint16_t>(positions(ce, c, word) | <uint32_t>((word >> RT_RING) & 1) << REG_RING
                      | <uint32_t>pos_of(word) << REG_POSITION)

cdef inline void set_clock(region_t* s, ce_t* ce, uint64_t t, int k, uint32_t value) noexcept nogil:
    # Word k of the cycle counter; it goes on from there.
    cdef uint64_t stamp = clock_of(s, ce, t)
    stamp = (stamp & ~(<uint64_t>0xFFFF << 16 * k)) | <uint64_t>value << 16 * k
    mapped_of(ce).begun = t - stamp

cdef void exec_mapped(region_t* s, ce_t* ce, uint32_t cell, uint64_t t, const instr_t* ins,
                      uint32_t address) noexcept nogil:
    # A load or store of 16 bits beyond memory, in real time: what it writes counts from the next cycle on.
    cdef bint stores = ins.form == FORM_ST
    cdef uint32_t value = ce.regs[ins.a & 15]
    cdef mapped_t* m = mapped_of(ce)
    cdef int c
    if REG_ROUTES <= address < REG_ROUTES + N_COLORS or REG_SWITCHES <= address < REG_SWITCHES + N_COLORS:
        c = <int>(address - (REG_SWITCHES if address >= REG_SWITCHES else REG_ROUTES))
        if s.f.route[c] == NULL:
            fault(s, ce, cell, t, FAULT_PROGRAM, address, c, D_NO_ROUTE, c)
        elif address >= REG_SWITCHES:
            if stores:
                write_switch(s, ce, cell, t, c, value)
            else:
                ce.regs[ins.a & 15] = switch_register(ce, c, s.f.route[c][cell])
        elif stores:
            write_route(s, ce, cell, t, c, value)
        else:
            ce.regs[ins.a & 15] = route_register(s.f.route[c][cell])
    elif REG_QUEUES <= address < REG_QUEUES + N_QUEUES:
        if stores:
            m.queues[address - REG_QUEUES] = <uint16_t>value
        else:
            ce.regs[ins.a & 15] = m.queues[address - REG_QUEUES]
    elif address == REG_CLOCK:
        if stores:
            m.clock = <uint16_t>value
        else:
            ce.regs[ins.a & 15] = m.clock
    elif REG_CLOCK < address <= REG_CLOCK + N_CLOCK_WORDS:
        c = <int>(address - REG_CLOCK - 1)
        if stores:
            set_clock(s, ce, t, c, value)
        else:
            ce.regs[ins.a & 15] = <uint16_t>(clock_of(s, ce, t) >> 16 * c)
    else:
        fault(s, ce, cell, t, FAULT_SRAM_RANGE, address, -1, 0, 1)
