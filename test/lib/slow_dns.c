/*
 * slow_dns.c
 *	  Preloaded into a test's server: a resolver that does not answer for
 *	  *.slow.invalid, knows that there is no *.none.invalid, and is the usual one
 *	  for everything else.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int (*Resolver) (const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int
ends_with(const char *text, const char *end)
{
	size_t		len = text ? strlen(text) : 0;

	return len > strlen(end) && strcmp(text + len - strlen(end), end) == 0;
}

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	if (ends_with(node, ".slow.invalid"))
	{
		sleep(60);
		return EAI_AGAIN;
	}
	if (ends_with(node, ".none.invalid"))
		return EAI_NONAME;
	return ((Resolver) dlsym(RTLD_NEXT, "getaddrinfo")) (node, service, hints, result);
}
