/*
 * http_url.c
 *	  URLs: which may be spoken to, and how text gets into one.
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <curl/curl.h>

#include "lib/stringinfo.h"

#include "http.h"

char *
http_escape_segment(const char *text)
{
	static const char unreserved[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	bool		is_dots = strcmp(text, ".") == 0 || strcmp(text, "..") == 0;
	StringInfoData out;

	initStringInfo(&out);
	for (; *text != '\0'; text++)
	{
		/* a segment of dots would be taken for a step in the path */
		if (strchr(unreserved, *text) != NULL && !is_dots)
			appendStringInfoChar(&out, *text);
		else
			appendStringInfo(&out, "%%%02X", (unsigned char) *text);
	}
	return out.data;
}

/* libcurl has brought numeric hosts into their usual form. */
static bool
is_loopback_host(const char *host)
{
	struct in_addr address;

	if (strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
		return true;
	return strncmp(host, "127.", 4) == 0 && inet_pton(AF_INET, host, &address) == 1;
}

/* A part of the URL as palloc'd text; NULL when it is absent. */
static char *
url_part(CURLU *handle, CURLUPart part)
{
	char	   *value;
	char	   *copy;

	if (curl_url_get(handle, part, &value, 0) != CURLUE_OK)
		return NULL;
	copy = pstrdup(value);
	curl_free(value);
	return copy;
}

static char *
parsed_url_problem(CURLU *handle)
{
	char	   *scheme = url_part(handle, CURLUPART_SCHEME);
	char	   *host = url_part(handle, CURLUPART_HOST);

	if (scheme == NULL || host == NULL || host[0] == '\0')
		return "it has no host";
	if (url_part(handle, CURLUPART_USER) != NULL || url_part(handle, CURLUPART_PASSWORD) != NULL)
		return "it has a user or password";
	if (strcmp(scheme, "https") == 0)
		return NULL;
	if (strcmp(scheme, "http") != 0)
		return "it is neither https nor http";
	return is_loopback_host(host) ? NULL : "http is for loopback only";
}

bool
http_check_url(const char *url, char **problem)
{
	CURLU	   *handle;

	/* libcurl does not tell an empty one, which would swallow the path all the same */
	if (strpbrk(url, "?#") != NULL)
	{
		*problem = "it has a query or fragment";
		return false;
	}
	for (const char *at = url; *at != '\0'; at++)
	{
		/* a backslash is a slash to some parsers and part of the host to others */
		if (*at <= ' ' || *at > '~' || *at == '\\')
		{
			*problem = "it holds a character that no URL has";
			return false;
		}
	}
	handle = curl_url();
	if (handle == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	if (curl_url_set(handle, CURLUPART_URL, url, 0) != CURLUE_OK)
		*problem = "it is not a URL";
	else
		*problem = parsed_url_problem(handle);
	curl_url_cleanup(handle);
	return *problem == NULL;
}
