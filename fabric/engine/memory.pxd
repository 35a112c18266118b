from wse_core.bitmap cimport map_t
from wse_core.records cimport ce_t, region_t, stream_in_t, stream_out_t, uint16_t, uint32_t, uint64_t, watch_t

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifdef MADV_HUGEPAGE
    #define WSE_LARGE_PAGES(p, n) madvise(p, n, MADV_HUGEPAGE)
    #else
    #define WSE_LARGE_PAGES(p, n) ((void)(p), (void)(n))
    #endif
    """
    void large_pages "WSE_LARGE_PAGES"(void* addr, size_t length) noexcept nogil

cdef enum:
    LARGE = 1073741824         # bytes of all PEs, or of their routers' queues, up to which they lie in large pages
    LARGE_PAGE = 2097152    # bytes of one
    POOL = 16777216         # bytes of them that tables share,
    SHARED_FROM = 0x2000    # on fabrics of so many cells, whose tables are many small pages,
    SHARED_TO = 0x15000     # and fewer than those on which queues have large pages of their own


cdef class Memory:
    cdef region_t* s             # the first mapping; every table it points to is another one
    cdef watch_t* watch         # what recording keeps per cell; `s.watch` is this, or NULL while nobody records
    cdef char* pool             # what is left of large pages that tables share, `left` bytes
    cdef uint64_t left
    cdef list maps              # (address, bytes) of every mapping

    cdef void given(self, int x, int y, int address, int count) noexcept
    cdef void* map(self, uint64_t size) except NULL
    cdef void* share(self, uint64_t size) except NULL
    cdef cells(self, map_t* maps, int n)
    cdef uint32_t cell(self, int x, int y)
    cdef ce_t* ce(self, int x, int y) except NULL
    cdef void settle(self) noexcept
    cdef uint16_t* words(self, int x, int y, int address, int count) except NULL
    cdef stream_in_t* input_at(self, int index) except NULL
    cdef stream_out_t* output_at(self, int index) except NULL
    cdef void free_buffers(self) noexcept
