from wse_core.records cimport ce_t, region_t, stream_in_t, stream_out_t, uint16_t, uint32_t, uint64_t, watch_t


cdef class Memory:
    cdef region_t* s             # the first mapping; every table it points to is another one
    cdef watch_t* watch         # what recording keeps per cell; `s.watch` is this, or NULL while nobody records
    cdef list maps              # (address, bytes) of every mapping

    cdef void* map(self, uint64_t size) except NULL
    cdef uint32_t cell(self, int x, int y)
    cdef ce_t* ce(self, int x, int y) except NULL
    cdef void settle(self) noexcept
    cdef uint16_t* words(self, int x, int y, int address, int count) except NULL
    cdef stream_in_t* input_at(self, int index) except NULL
    cdef stream_out_t* output_at(self, int index) except NULL
    cdef void free_buffers(self) noexcept
