/* The float mode of the calling thread: set to what every result relies on, and put back.

   Round to nearest, gradual underflow, no traps.  A library that was built with -ffast-math, or a call of it, may have
   left another mode in the thread; what is computed between `enter` and `leave` does not depend on it, and the caller
   finds everything as it was, sticky exception flags included.  Cost: about ten instructions. */
#ifndef WSE_FLOAT_MODE_H
#define WSE_FLOAT_MODE_H

#if defined(__GNUC__) && defined(__SSE2__)
#include <xmmintrin.h>
typedef unsigned wse_float_mode_t;
static inline wse_float_mode_t wse_float_mode_enter(void)
{
    wse_float_mode_t was = _mm_getcsr();
    _mm_setcsr(0x1F80);                     /* all exceptions masked, everything else off */
    __asm__ volatile("" ::: "memory");      /* no operand is loaded before, no result stored after */
    return was;
}
static inline void wse_float_mode_leave(wse_float_mode_t was)
{
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(was);
}
#else
#include <fenv.h>
typedef fenv_t wse_float_mode_t;
static inline wse_float_mode_t wse_float_mode_enter(void)
{
    wse_float_mode_t was;
    fegetenv(&was);
    fesetenv(FE_DFL_ENV);
    __asm__ volatile("" ::: "memory");
    return was;
}
static inline void wse_float_mode_leave(wse_float_mode_t was)
{
    __asm__ volatile("" ::: "memory");
    fesetenv(&was);
}
#endif

#endif
