/*
 * step_clock.c
 *	  Preloaded into a test's server: once the file that STEP_CLOCK names is
 *	  there, the time of day is an hour earlier, as after a step of the clock.
 *	  What the clock does not show, the time since boot, goes on as ever.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#define STEP_SECONDS 3600

typedef int (*Clock) (struct timeval *, void *);

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	const char *name = getenv("STEP_CLOCK");
	int			result = ((Clock) dlsym(RTLD_NEXT, "gettimeofday")) (now, zone);

	if (name != NULL && access(name, F_OK) == 0)
		now->tv_sec -= STEP_SECONDS;
	return result;
}
