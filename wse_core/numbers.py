"""The table of modelled numbers has every one once, with unit, source and confidence, and a column per further preset.

A row of `ROWS` is a number of the WSE-2 and what it means; `PRESETS` holds, per preset, the numbers that differ.
**A new machine is a new column**: an entry of `PRESETS`, nothing else.  No number of the hardware is written anywhere
else; what reads the table is `wse_core.params` (types, limits, overrides), and through it the compiled engine, the
plain-Python reference, the kernels, the documentation (``docs/accuracy.md``) and ``wse doctor --assumptions``.

SIMD lanes are numbers too, ``lanes.<operation>``.  Those of WSE-2 and WSE-3 stand in the row of the operation in
`wse_core.isa`, beside what it computes; another preset names them in its column.

Confidence: *published* (vendor document, vendor tool or peer-reviewed paper), *inferred* (derived from published
measurements), *assumed* (no public evidence; the most defensible choice).

Sources, short: architecture reference sections are cited as "arch §n"; HPDC24 = Luczynski et al., arXiv 2404.15888;
SPMM = pr0f3ss/SpMM_Cerebras cycle tables (WSE-2 fabric simulator); CSL = vendor's CSL language documentation.  Other
measured programs are named as in ``harness/validation/calibration.json``; `wse validate` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wse_core import isa
from wse_core.encoding import CONFLICT_RULES, MAX_BANKS

__all__ = ["DEFAULT_PRESET", "PRESETS", "ROWS"]

PAPER = "weight streaming white paper"
WAFERLLM = "WaferLLM (OSDI 2025)"
TEN_LESSONS = "Ten Lessons (ISCA 2021), table 2"
HUGE = 1 << 62

ROWS: list[dict[str, Any]] = []
"""Each row has the keyword arguments of one `wse_core.params.Param`, in the order in which the numbers are listed."""


def _p(name: str, value: Any, unit: str, source: str, confidence: str, doc: str, **limits: Any) -> None:
    ROWS.append(
        {"name": name, "value": value, "unit": unit, "source": source, "confidence": confidence, "doc": doc, **limits}
    )


# A table: a row is read as a whole.
# fmt: off
# --- scale -------------------------------------------------------------------------------------------------------
_p("fabric.width", 757, "PEs", "arch §1: --fabric-dims of a real system", "published", "PEs along x (east)", low=1,
   high=65535)
_p("fabric.height", 996, "PEs", "arch §1: --fabric-dims of a real system", "published", "PEs along y (south)",
   low=1, high=65535)
_p("clock.ghz", 0.85, "GHz", "arch §1: vendor's host scripts convert cycles at 0.85", "published",
   "conversion of cycles to seconds only; no cycle count depends on it", low=0, high=100)

# --- memory of a PE ------------------------------------------------------------------------------------------------
_p("mem.words", 24576, "16-bit words", "arch §2: 48 kB per PE, word addressed", "published",
   "size of a PE's SRAM, code and data together", low=256, high=32768)
_p("mem.banks", 8, "banks", "arch §2 (CSL appendix)", "published", "consecutive words lie in consecutive banks",
   low=1, high=MAX_BANKS)
_p("mem.read_ports", 2, "reads/cycle", "arch §2 (CSL appendix; HC34)", "published",
   "memory operands a step can read at once; a third memory source costs a further cycle", low=1, high=2)
_p("mem.conflict_rule", "bank", "rule", "tiled stencils of 64 x 64 cells (Jorineg): 1.15 and 1.35 cycles per element "
   "and operation; the CSL appendix (arch §2) can be read as mod4", "inferred",
   "bank: two reads of the same bank conflict, fp32 words at a distance of 0 modulo 4; mod4: banks that agree modulo "
   "half their number, a distance of 0 modulo 2; none: never",
   choices=CONFLICT_RULES)
_p("mem.conflict_cycles", 1, "cycles/step", "SPMM: fp32 step takes 2 cycles with a conflict, 1 without", "inferred",
   "added to a SIMD step whose two reads conflict; nothing issues meanwhile", high=64)
_p("mem.write_cycles", 1, "cycles/step", "dense local products (SPMM GEMM_benchmark): 2 cycles per element and the "
   "3/16 of `vec.mac_late` with both vectors strided by a multiple of four words", "inferred",
   "lost by a SIMD step that reads from the bank in which all elements of the destination lie, or by one whose reads "
   "conflict, whichever is longer", high=64)

# --- scalar pipeline -----------------------------------------------------------------------------------------------
_p("ce.int_latency", 1, "cycles", "arch §3: one scalar instruction per cycle", "inferred",
   "issue of an integer instruction to issue of one that uses its result", low=1, high=64)
_p("ce.load_latency", 2, "cycles", "trace of a matrix product (MIMD_dataflow): 22 cycles from one 5-element fmacs to "
   "the next with 15 scalar instructions between, so one stall; white paper: one cycle", "inferred",
   "the same for a load", low=1, high=64)
_p("ce.pair", 2, "cycles", "sparse products without their multiply-add (pr0f3ss/SpMM_Cerebras, memory_access_latency): "
   "34.0 cycles per element of COO, of which 32-bit shifts and sums take 12; registers have 16 bits", "inferred",
   "issue slots of a 32-bit integer operation: two of 16 bits", low=1, high=64)
_p("ce.fp_latency", 2, "cycles", "arch §3: dependent floating point issues every 2 cycles (WSE-3)", "inferred",
   "the same for floating point", low=1, high=64)
_p("ce.branch_taken", 6, "cycles", "arch §3 (WSE-3 measurement)", "inferred", "issue of a taken branch to its target",
   low=1, high=64)
_p("ce.branch_not_taken", 1, "cycles", "tiled stencils (Jorineg): 110 cycles for ten tasks that count completions and "
   "16 set-ups; WSE-3: 3 (arch §3)", "inferred", "issue of an untaken branch to the next instruction", low=1, high=64)
_p("ce.branch_end", 0, "cycles", "log lines of the vendor's simulator have predicates, so an instruction that ends a "
   "task may be one that is not always executed (arch §11); tiled stencils in the author's source (Jorineg), whose "
   "tasks end by such a comparison", "inferred",
   "issue of a taken branch to an instruction that ends the task; 0: as any branch",
   high=64)
_p("ce.branch32", 5, "cycles", "the loops of sparse products as for ce.pair (pr0f3ss/SpMM_Cerebras): 32.1 "
   "cycles per element of CSC, CSR and rolled ELLPACK, which count in 32 bits", "inferred",
   "issue slots of a comparison of two 32-bit integers with its branch, 1 for one of 16 bits", low=1, high=64)
_p("ce.call", 6, "cycles", "arch §3 default: call and return 10 together", "assumed", "issue of a call to its target",
   low=1, high=64)
_p("ce.ret", 4, "cycles", "arch §3 default: call and return 10 together", "assumed",
   "issue of a return to the next instruction", low=1, high=64)
_p("ce.divide", 50, "cycles", "cycle-models.md: about 50 cycles, comments in vendor examples", "published",
   "issue slots taken by a divide or square root (library routines on the machine)", low=1, high=1024)
_p("ce.dsr_load", 6, "cycles", "SUMMA (CS-2) and sparse products (SPMM): 20-21 cycles for three DSR loads and an issue",
   "inferred",
   "issue of the load of a descriptor into a DSR to the next instruction of the thread; microthreads may issue "
   "meanwhile", low=1, high=64)
_p("ce.dsr_dimension", 3, "cycles", "tiled stencils (Jorineg), radii 2 to 6: 8 to 10 cycles to set up an operation "
   "over a plane", "inferred", "the same, for each further dimension of a descriptor of several", high=64)
_p("ce.dsr_row", 0, "cycles", "states of a one-cell stencil in its author's history (Jorineg), WSE-2: four loads, each "
   "before an operation, are 12 cycles, a pair of loads 4 to 5; the tiled one of radius 1, which loads eight in a row, "
   "takes 13 cycles too many with three each, whatever the tile", "inferred",
   "issue of the load of a known descriptor of one dimension in memory to that of a load behind it; 0: as any load",
   high=64)
_p("ce.fabric_load", 0, "cycles", "tiled stencils in the author's source (Jorineg), WSE-3: of radius 1, whose "
   "descriptors of the fabric stay in DSRs, no cycles are missing, of radius 2 to 6 some 32 for eight loads of them, "
   "however long transfers take", "inferred",
   "the same, more for a descriptor of the fabric; nothing else issues meanwhile", high=64)
_p("ce.dsr_edit", 1, "cycles", "SUMMA with library broadcasts (CS-2), tiles of 4 and 8: 21 cycles for three loads with "
   "offsets and the issue", "inferred",
   "issue slots taken by changing one field of a DSR", low=1, high=64)
_p("ce.tsc_read", 5, "cycles", "SPMM: n + 6 between two time stamps, n + 1 issue to issue", "inferred",
   "issue slots of a 48-bit time-stamp read; the counter is sampled in the first", low=1, high=64)
_p("ce.config", 2, "cycles", "arch §2: configuration registers are memory mapped", "assumed",
   "issue slots of a write to a router's configuration", low=1, high=64)

# --- vector operations ----------------------------------------------------------------------------------------------
_p("vec.drain", 0, "cycles", "one-cell stencil (Jorineg): 12 cycles for 6 operations of one element; log of a matrix "
   "product: 15 cycles for 14 elements", "inferred",
   "after the last step of a synchronous vector operation, before the thread's next issue", high=64)
_p("tsc.own", 0, "cycles", "local products on a CS-2 of 2023 (pr0f3ss/SpMM_Cerebras, benchmarks): 1,513 to 1,523 "
   "cycles in three formats, whatever the tile; the cause is not known", "inferred",
   "added by `wse validate` to what is between two time stamps; 1520 on that machine")
_p("vec.mac_late", 0, "cycles/16 elements", "local products on a CS-2 of 2023 (pr0f3ss/SpMM_Cerebras, benchmarks): "
   "1.1875 cycles per element where the vendor's simulator and a CS-2 of 2025 take 1; the cause is not known",
   "inferred",
   "drain of a synchronous multiply-add beyond `vec.drain`, rounded down per operation; 3 on that machine", high=64)
_p("vec.fill_late", 0, "cycles/1000 elements", "HPDC24, spcl/spatial-collectives: on a CS-2 of 2023 all PEs begin "
   "together if each fills 1.629 words of 32 bits per PE of distance (found there by trying), so that a word takes "
   "0.614 cycles where the vendor's simulator takes 0.5; on a rectangle 1.334; the cause is not known", "inferred",
   "drain of a synchronous operation that writes registers to memory beyond `vec.drain`, rounded down per operation; "
   "114 on that machine", high=10_000)
_p("vec.raw", 0, "cycles", "one-cell stencil on the WSE-3 (Jorineg): 17 cycles on one inner PE, of whose six "
   "operations five read the cell that the one before wrote; 12 without", "inferred",
   "by which a synchronous operation begins later if its first element is the last that the operation before wrote",
   high=64)
_p("vec.start", 0, "cycles", "the same: n + 1 cycles issue to issue", "inferred",
   "between issue of a vector operation and its first step, beyond the next cycle", high=64)
_p("vec.stride4_lanes", 2, "elements", "arch §4.2: the page says two things; 2 is the cautious one", "assumed",
   "SIMD width for a stride that is 4 modulo 8", low=1, high=8)
_p("dsr.count", 16, "per file", "arch §5.2: WSE-3 has 16; unknown for WSE-2", "assumed",
   "DSRs in each of the files dest, src0, src1", low=1, high=16)
_p("dsr.xdsr", 24, "registers", "arch §5.2: not public; a tiled stencil that keeps all descriptors (Jorineg) needs 18",
   "assumed", "extended DSRs: FIFOs, circular buffers, 4-D descriptors", low=1, high=64)

_p("dsr.paired", 1, "flag", "arch §5.2: both carry the same id; lifted on WSE-3", "published",
   "1: a dest and a src0 DSR of one operation have the same id", high=1)

# --- threads and tasks ------------------------------------------------------------------------------------------------
_p("ut.count", 8, "microthreads", "arch §5.4", "published", "microthreads besides the main thread", low=1, high=8)
_p("ut.of_queue", 1, "flag", "arch §5.4: explicit on WSE-3", "published",
   "1: an operation on the fabric runs on the microthread with the number of its queue", high=1)
_p("task.start", 3, "cycles", "arch §6 (WSE-3); 201 cycles from a send of 196 words to the task after it "
   "(csl-experiments, WSE-2 simulator)", "inferred", "picker's choice to first instruction",
   high=64)
_p("task.overlap", 0, "cycles", "tiled stencils in the author's source (Jorineg): 87 to 92 cycles for ten tasks one "
   "after the other, eight of which only count, and 16 set-ups", "inferred", "of task.start, what passes while a task "
   "ends: for one that is picked in the cycle after another has ended", high=64)
_p("task.by_queue", 0, "flag", "arch §6; WSE-3: SDK pages of the builtins", "published",
   "1: a data task belongs to an input queue and has its number as id; 0: to a color", high=1)
_p("task.priority_rule", "lowest", "rule", "arch §6: order inside a level not published", "assumed",
   "among tasks of one priority: lowest id first, or round_robin", choices=("lowest", "round_robin"))

# --- queues -----------------------------------------------------------------------------------------------------------
_p("queue.in_depth", (6, 6, 4, 4, 2, 2, 2, 2), "wavelets", "arch §5.3 (CSL types)", "published",
   "depth of each input queue", low=0, high=11)
_p("queue.out_depth", (2, 2, 6, 6, 2, 2, 0, 0), "wavelets", "arch §5.3 (CSL types)", "published",
   "depth of each output queue; 0 means that the queue does not exist", low=0, high=12)

# --- router -----------------------------------------------------------------------------------------------------------
_p("router.colors", 24, "colors", "arch §7", "published", "routable colors", low=1, high=24)
_p("router.hop", 1, "cycles", "arch §8.4", "published", "router to router", low=1, high=8)
_p("router.depth", 2, "wavelets", "arch §8.1: not public; enough for full rate", "assumed",
   "buffer per color and input port; a hop of h cycles needs h + 1 for full rate", low=1, high=8)
_p("switch.colors", tuple(range(24)), "colors", "arch §8.2", "published", "colors that have a switch", high=23,
   any_length=True)
_p("switch.one_direction", 1, "flag", "arch §8.2", "published",
   "1: a switch position changes one of input and output, to a single direction", high=1)
_p("inputs.per_position", 5, "inputs", "arch §8.1", "published", "inputs that a switch position may name",
   low=1, high=5)
_p("router.swap", 1, "flag", "arch §8.1; WSE-3: no such program is offered for it (EX2, topic 14)", "published",
   "1: two colors of a pair may change places", high=1)
_p("router.injection", 1, "flag", "arch §8.1, §8.2", "published",
   "1: a CE can feed a color besides the router's inputs, from output queue color // 4", high=1)
_p("ramp.in", 2, "cycles", "HPDC24: ramp latency about 2", "published", "router to CE input queue", low=1, high=8)
_p("ramp.out", 2, "cycles", "HPDC24: ramp latency about 2; WSE-3: 6, one-cell stencil (Jorineg): 23 cycles among "
   "neighbours, and 7 from a send to the link (FABRICA)", "published", "CE output queue to router", low=1, high=8)
_p("ramp.execute", 1, "cycles", "HPDC24: 2 T_R + 1 per dependent stage; SPMM: 6 cycles per PE", "published",
   "step of a vector operation to its result entering the output queue", low=1, high=8)
_p("ramp.in_buffer", 2, "wavelets", "one register per cycle of the ramp, so that a queue of depth 2 runs at full rate",
   "assumed", "registers of the off-ramp per color, beyond the input queue's depth", low=0, high=4)
_p("router.filters", 6, "filters", "arch §8.3 (SDK 1.4 notes)", "published", "filters per PE", low=0, high=6)

# --- host and frame of programs in CSL: PEs around the rectangle that carry commands and streams (arch §10.1) ---------
_p("memcpy.command", 0, "cycles", "not public; time stamps inside of PEs do not depend on it", "assumed",
   "end of a command of the host to the activation of a launch or the first word of a stream, while the PEs run on",
   high=HUGE)
_p("memcpy.word", 1, "cycles/word", "not public; a link carries a word per cycle (arch §7)", "assumed",
   "one word of a stream to the next, into or out of each PE", low=1, high=10**6)
_p("memcpy.poll", 128, "cycles", "not public", "assumed",
   "the host looks for the first time whether a command is over, then each time `memcpy.poll_share` more has passed",
   low=1, high=10**6)
_p("memcpy.poll_share", 0.125, "ratio", "not public", "assumed", "see `memcpy.poll`", low=0, high=1)
_p("memcpy.rest", 100_000, "cycles", "not public; long enough for what public programs leave running", "assumed",
   "a copy waits at most so long for what is still moving", high=HUGE)

# --- numerics ---------------------------------------------------------------------------------------------------------
_p("num.cb16_bias", 42, "", "CSL types page: 6.0 is 0x5900", "inferred", "exponent bias of CB16", low=1, high=62)
_p("num.fmac", "fused", "rule", "numerics.md section 2: no public statement; a public stencil with inexact weights "
   "compares bit for bit with unfused multiply-adds on WSE-3", "assumed",
   "multiply-adds of fp32 and of 16-bit floats round once (fused), or the product and then the sum (separate)",
   choices=("fused", "separate"))
_p("num.ftz", 0, "flag", "numerics.md section 2: no public statement", "assumed", "flush subnormals to zero", high=1)

# --- memory service -----------------------------------------------------------------------------------------------
_p("capacity.least", 4 * 10**12, "bytes", f"{PAPER}, section 6.3", "published", "smallest memory service", high=HUGE)
_p("capacity.most", 24 * 10**14, "bytes", f"{PAPER}, section 6.3", "published", "largest memory service", high=HUGE)
_p("stream.rate", 150 * 10**9, "bytes/s", f"{PAPER}, section 6.4: 1.2 Tb/s of I/O per system", "published",
   "rate at which weights leave and gradients arrive", low=1, high=HUGE)
_p("dram.bytes", 10**12, "bytes", "no public figure", "assumed", "DRAM in front of flash", high=HUGE)
_p("flash.rate", 150 * 10**9, "bytes/s", "no public figure; white paper, section 6.3: performance of DRAM", "assumed",
   "read rate of flash, all channels together", low=1, high=HUGE)
_p("update.rate", 75 * 10**9, "parameters/s", "white paper, section 6.3: updates keep up with the stream; one 16-bit "
   "weight per 2 bytes of the stream", "inferred", "optimizer steps per second, all processors together", low=1,
   high=HUGE)
_p("update.latency", 10_000, "ns", "no public figure; a message through a host", "assumed",
   "from the arrival of a gradient to the new weight in the stream", high=HUGE)
_p("answer.latency", 10_000, "ns", "no public figure; a message through a host", "assumed",
   "from the last sum over a batch that is normalised to what is made of it in the stream; wafers that wait for it are "
   "simulated in pieces as long", low=100, high=HUGE)

# --- between memory service and wafers ------------------------------------------------------------------------------
_p("link.rate", 100 * 10**9, "bits/s", f"{PAPER}, section 6.4", "published", "one link, each direction", low=1,
   high=HUGE)
_p("link.planes", 12, "links", f"{PAPER}, section 6.4: 1.2 Tb/s of I/O per system, at which weights are delivered",
   "published", "links of a system, a plane of nodes each; tree and planner count them", low=1)
_p("link.chunk", 1024, "words", "no public figure; 4 KiB, less than a frame of 9,000 bytes holds", "assumed",
   "of 32 bits that go over a plane before those after them go over the next one, each direction", low=1)
_p("link.buffer", 16 * 2**20, "bytes", "no public figure; more than the links carry in the latency of a tree",
   "assumed", "on the way to a system or waiting there, per direction", low=1, high=HUGE)
_p("link.turn", 100, "ns", "no public figure; a pause frame of 100 Gb/s Ethernet", "assumed",
   "from room in a full buffer to hearing of it at the other end, besides the latency of the tree", high=HUGE)
_p("node.ways", 4, "ports", f"{PAPER}, section 6.4", "published",
   "most ports of a broadcast-reduce: a node does one with more than two ports, or two with two", low=2)
_p("node.rate", 100 * 10**9, "bits/s", f"{PAPER}, section 6.4: reductions at line rate", "published",
   "what a node copies or adds per plane, each direction", low=1, high=HUGE)
_p("node.latency", 1000, "ns", "no public figure; store and forward of a packet over 100 Gb/s Ethernet", "assumed",
   "of a level of the tree, one way", high=HUGE)

# --- the wafer as the weight streaming paper counts it: for the planner, which knows no cycles ------------------------
_p("plan.cores", 850_000, "cores", f"{PAPER}, section 6.1; the fabric that programs see is `fabric.width` x "
   "`fabric.height`", "published", "cores that the planner's rate of operations counts", low=1)
_p("plan.core_ghz", 1.1, "GHz", f"{PAPER}: not printed; its rate follows with 1.1, while the vendor's host scripts "
   "convert cycles at `clock.ghz`", "inferred", "clock that the planner's rate of operations counts", high=100)
_p("plan.core_operations", 8, "operations/cycle", f"{PAPER}, section 6.1: four multiply-adds", "published",
   "16-bit operations of a core per cycle, for the planner", low=1)
_p("plan.memory_bytes", 40 * 10**9, "bytes", f"{PAPER}, section 6.1", "published", "SRAM of a wafer, for the planner",
   low=1, high=HUGE)
_p("plan.memory_rate", 20 * 10**15, "bytes/s", f"{PAPER}, section 6.1", "published",
   "bandwidth of that SRAM, for the planner", low=1, high=HUGE)

# --- inference as the fifth source has it: for the composed model of `harness.inference` ------------------------------
_p("infer.script_ghz", 1.1, "GHz", f"{WAFERLLM}: its host scripts convert cycles at 1.1, the vendor's at `clock.ghz`",
   "published", "the other clock at which every time of an inference is printed", high=100)
_p("infer.weight_step", 40, "cycles/step", "calls and descriptors of a step, as their decode has them", "assumed",
   "instructions of a step of P V by floods, which no kernel has measured", high=10**6)
_p("infer.handover", 100, "cycles", "no public figure; descriptors, an issue and the ramps", "assumed",
   "from region to region beyond one cycle per column", high=10**6)
_p("t10.prefill_step", 0.285, "cycles", f"{WAFERLLM}, table 3: a fit, one constant for 12 cells", "inferred",
   "T10's prefill: per pair of PEs a side and feature", high=10**6)
_p("t10.prefill_word", 595.0, "cycles", f"{WAFERLLM}, table 3: a fit, one constant for 12 cells", "inferred",
   "T10's prefill: per weight of a column of PEs", high=10**6)
_p("ladder.decode_line", 2958, "cycles", f"{WAFERLLM}, table 4: a fit, one constant for 12 cells", "inferred",
   "Ladder's decode: per row or column of PEs and layer", high=10**6)
_p("ladder.decode_word", 0.99, "cycles", f"{WAFERLLM}, table 4: a fit, near to a weight that passes a row of PEs per "
   "cycle", "inferred", "Ladder's decode: per weight of a row of PEs", high=10**6)
_p("ladder.prefill_pair", 6102, "cycles", f"{WAFERLLM}, table 3: a fit, one constant for 12 cells", "inferred",
   "Ladder's prefill: per pair of PEs a side", high=10**6)
_p("ladder.prefill_word", 1.27, "cycles", f"{WAFERLLM}, table 3: a fit, near to a weight that passes the wafer per "
   "cycle", "inferred", "Ladder's prefill: per weight and activation", high=10**6)

# --- energy: what each count of `wse_core.work` takes; operations of 7 nm, in which the WSE-2 is made -----------------
_p("energy.hop", 3.2, "pJ", "WaferLLM (OSDI 2025), table 1: 0.1s pJ/bit between dies of a wafer; 0.1 for each of 32 "
   "bits", "inferred", "a wavelet leaves a router's queue for the next router or the CE, by several links too",
   high=10**6)
_p("energy.read", 1.875, "pJ/word", f"{TEN_LESSONS}: 7.5 for 64 bits of an SRAM of 8 KB; a bank has 6 (arch §2)",
   "inferred", "16 bits are read from SRAM", high=10**6)
_p("energy.write", 1.875, "pJ/word", "the same: the table has one number for an access", "inferred",
   "16 bits are written to SRAM", high=10**6)
_p("energy.issue", 3.75, "pJ", "two words of `energy.read`: code lies in the same SRAM (arch §2)", "inferred",
   "an issue slot of the main thread: 32 bits of code are fetched", high=10**6)
_p("energy.f16_add", 0.16, "pJ", TEN_LESSONS, "published", "addition of f16, also of a multiply-add", high=10**6)
_p("energy.f16_multiply", 0.34, "pJ", TEN_LESSONS, "published", "product of f16, also of a multiply-add", high=10**6)
_p("energy.cb16_add", 0.143, "pJ", f"{TEN_LESSONS}: f16 0.16, bf16 0.11; in proportion to the bits of a significand, "
   "11, 8 and here 10", "inferred", "the same of cb16", high=10**6)
_p("energy.cb16_multiply", 0.292, "pJ", f"{TEN_LESSONS}: f16 0.34, bf16 0.21; in proportion to their squares",
   "inferred", "the same of cb16", high=10**6)
_p("energy.f32_add", 0.38, "pJ", TEN_LESSONS, "published", "addition of fp32, also of a multiply-add", high=10**6)
_p("energy.f32_multiply", 1.31, "pJ", TEN_LESSONS, "published", "product of fp32, also of a multiply-add", high=10**6)
_p("energy.int_add", 0.03, "pJ", f"{TEN_LESSONS}, of 32 bits", "published",
   "addition, comparison, shift or bits of integers", high=10**6)
_p("energy.int_multiply", 1.48, "pJ", f"{TEN_LESSONS}, of 32 bits", "published", "product of integers", high=10**6)
_p("energy.cycle", 2.77, "pJ/cycle", "HC34: 30 mW at most at 1.1 GHz are 27.27 pJ per cycle of a PE, less its busiest "
   "cycle: 4 multiply-adds of f16, 8 words read and 4 written", "inferred",
   "a cycle of a PE that is powered, whatever it does: clocks, control, leakage", high=10**6)

# --- counters and generators ------------------------------------------------------------------------------------------
_p("tsc.bits", 48, "bits", "arch §10.3", "published", "width of the time-stamp counter", low=16, high=63)
_p("prng.seed", 0xDEADBEEF, "", "arch §3 (CSL builtins)", "published", "initial state of the random generators",
   low=1, high=2**32 - 1)
_p("prng.steps", 128, "steps/draw", "arch §3 (CSL builtins)", "published", "LFSR steps per 16-bit draw",
   low=1, high=4096)

for _op in isa.OPS:
    if any(_op.lanes):
        _p(f"lanes.{_op.name}", _op.lanes[0], "elements/cycle", _op.source,
           "published" if _op.source == "arch §4.2" else "inferred" if "omission" in _op.source else "assumed",
           f"SIMD width of {_op.name}",
           choices=(1, 2, 4, 8))

DEFAULT_PRESET = "wse2"
"""This machine is meant where none is named."""

PRESETS: dict[str, Mapping[str, Any]] = {
    "wse2": {},
    "wse3": {
        "fabric.width": 762,
        "fabric.height": 1172,
        "ce.branch_not_taken": 3,
        "vec.raw": 1,
        "ramp.out": 6,
        "dsr.paired": 0,
        "ut.of_queue": 0,
        "queue.in_depth": (8, 8, 4, 4, 4, 4, 4, 4),
        "queue.out_depth": (8,) * 8,
        "task.by_queue": 1,
        "router.hop": 2,
        "router.depth": 3,
        "switch.colors": (*range(10), 12, 13, 16, 17, 20, 21),
        "switch.one_direction": 0,
        "inputs.per_position": 1,
        "router.injection": 0,
        "router.swap": 0,
        **{f"lanes.{op.name}": op.lanes[1] for op in isa.OPS if any(op.lanes)},
    },
}
"""Each preset has these numbers, by name, that differ from the rows.  Test a new one with ``wse kernel ... --preset
NAME``.
"""
# fmt: on
