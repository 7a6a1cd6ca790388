/*
 * slow_dns.c
 *	  Preloaded into a test's server: a resolver that does not answer for
 *	  *.slow.invalid and is the usual one for everything else.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#define SUFFIX ".slow.invalid"

typedef int (*Resolver) (const char *, const char *, const struct addrinfo *, struct addrinfo **);

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	size_t		len = node ? strlen(node) : 0;

	if (len > strlen(SUFFIX) && strcmp(node + len - strlen(SUFFIX), SUFFIX) == 0)
	{
		sleep(60);
		return EAI_AGAIN;
	}
	return ((Resolver) dlsym(RTLD_NEXT, "getaddrinfo")) (node, service, hints, result);
}
