# The float mode of the calling thread, see float_mode.h.  Whoever computes floats for the host (a run, the array forms,
# anything that lets a CE catch up) stands between `enter` and `leave`; what is called in between need not care.  Python
# code of others (a sink, a signal handler) is called outside.

cdef extern from "wse_core/float_mode.h":
    ctypedef struct float_mode_t "wse_float_mode_t":
        pass
    float_mode_t float_mode_enter "wse_float_mode_enter"() noexcept nogil
    void float_mode_leave "wse_float_mode_leave"(float_mode_t was) noexcept nogil
