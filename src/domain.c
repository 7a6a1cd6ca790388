/*
 * domain.c
 *	  Domain patterns of network policies.
 */
#ifdef FRONTEND
#include "postgres_fe.h"
#else
#include "postgres.h"
#endif

#include "domain.h"

#define MAX_LABEL_BYTES		63
#define MAX_DOMAIN_BYTES	253
#define IPV4_PARTS			4

const char *const internal_surface[] = {
	"_api.internal", "*.internal",
	"flycast", "*.flycast",
	"fly.storage.tigris.dev", "*.fly.storage.tigris.dev",
	"t3.tigrisfiles.io", "*.t3.tigrisfiles.io"
};
const int	internal_surface_len = lengthof(internal_surface);

bool
domain_is_wildcard(const char *pattern)
{
	return pattern[0] == '*' && pattern[1] == '.';
}

static bool
is_alphanumeric(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Four numbers with dots between, whatever their size. */
static bool
is_ipv4_literal(const char *host)
{
	int			parts = 1;

	if (strspn(host, "0123456789.") != strlen(host))
		return false;
	for (; *host != '\0'; host++)
	{
		if (*host == '.')
			parts++;
	}
	return parts == IPV4_PARTS;
}

/*
 * Walks the labels of a host.  Returns their number, or 0 when one is empty, too
 * long, or made of anything but lower-case letters, digits and inner hyphens.
 */
static int
count_labels(const char *host, bool allow_underscore)
{
	int			labels = 0;

	if (strlen(host) > MAX_DOMAIN_BYTES)
		return 0;
	for (;;)
	{
		size_t		len = strcspn(host, ".");

		if (len == 0 || len > MAX_LABEL_BYTES || host[0] == '-' || host[len - 1] == '-')
			return 0;
		for (size_t i = 0; i < len; i++)
		{
			if (!is_alphanumeric(host[i]) && host[i] != '-' &&
				!(allow_underscore && host[i] == '_'))
				return 0;
		}
		labels++;
		if (host[len] == '\0')
			return labels;
		host += len + 1;
	}
}

static bool
has_upper_case(const char *text)
{
	for (; *text != '\0'; text++)
	{
		if (*text >= 'A' && *text <= 'Z')
			return true;
	}
	return false;
}

static bool
is_ascii(const char *text)
{
	for (; *text != '\0'; text++)
	{
		if ((unsigned char) *text >= 0x80)
			return false;
	}
	return true;
}

const char *
domain_problem(const char *pattern)
{
	const char *host = domain_is_wildcard(pattern) ? pattern + 2 : pattern;
	size_t		len = strlen(host);

	if (strcmp(pattern, "*") == 0)
		return NULL;
	if (len == 0)
		return "is empty";
	if (!is_ascii(host))
		return "is not ASCII; write it in its xn-- form";
	if (strchr(host, '/') != NULL)
		return "is a URL";
	if (host[0] == '[' || is_ipv4_literal(host) || strchr(host, ':') != strrchr(host, ':'))
		return "is an IP address; rules match names";
	if (strchr(host, ':') != NULL)
		return "has a port";
	if (strchr(host, '*') != NULL)
		return "has a * elsewhere than in front";
	if (host[len - 1] == '.')
		return "ends with a dot";
	if (has_upper_case(host))
		return "has upper-case letters";
	if (count_labels(host, true) == 0)
		return "is not a host name";
	return NULL;
}

bool
domain_is_within(const char *name, const char *zone)
{
	size_t		name_len = strlen(name);
	size_t		zone_len = strlen(zone);

	if (name_len < zone_len || strcmp(name + name_len - zone_len, zone) != 0)
		return false;
	return name_len == zone_len || name[name_len - zone_len - 1] == '.';
}

bool
domain_overlaps_internal(const char *pattern)
{
	bool		wildcard = domain_is_wildcard(pattern);
	const char *base = wildcard ? pattern + 2 : pattern;

	for (int i = 0; i < internal_surface_len; i++)
	{
		const char *zone = domain_is_wildcard(internal_surface[i]) ?
			internal_surface[i] + 2 : internal_surface[i];

		if (domain_is_within(base, zone) || (wildcard && domain_is_within(zone, base)))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------
 * Allowlist entries
 * ------------------------------------------------------------------------
 */

/* Bytes of the white space that text begins with, as JavaScript's trim has it. */
static size_t
white_space_len(const char *text)
{
	static const char *const wide[] = {
		"\302\240",				/* U+00A0 */
		"\341\232\200",			/* U+1680 */
		"\342\200\200", "\342\200\201", "\342\200\202", "\342\200\203", /* U+2000 ... */
		"\342\200\204", "\342\200\205", "\342\200\206", "\342\200\207",
		"\342\200\210", "\342\200\211", "\342\200\212", /* ... U+200A */
		"\342\200\250", "\342\200\251", /* U+2028, U+2029 */
		"\342\200\257",			/* U+202F */
		"\342\201\237",			/* U+205F */
		"\343\200\200",			/* U+3000 */
		"\357\273\277",			/* U+FEFF */
	};

	if (*text == ' ' || (*text >= '\t' && *text <= '\r'))
		return 1;
	for (size_t i = 0; i < lengthof(wide); i++)
	{
		if (strncmp(text, wide[i], strlen(wide[i])) == 0)
			return strlen(wide[i]);
	}
	return 0;
}

/* A copy without white space at either end. */
static char *
trim(const char *text)
{
	const char *end;
	size_t		skip;

	while ((skip = white_space_len(text)) > 0)
		text += skip;
	end = text;
	for (const char *at = text; *at != '\0';)
	{
		skip = white_space_len(at);
		at += skip > 0 ? skip : 1;
		if (skip == 0)
			end = at;
	}
	return pnstrdup(text, end - text);
}

/*
 * Lower-cases in place as JavaScript does, as far as it can matter: of all
 * characters beyond ASCII only the Kelvin sign, U+212A, becomes one that a host
 * may hold.
 */
static void
lower_case(char *text)
{
	const char *from = text;

	while (*from != '\0')
	{
		if (strncmp(from, "\342\204\252", 3) == 0)
		{
			*text++ = 'k';
			from += 3;
			continue;
		}
		*text++ = (char) (*from >= 'A' && *from <= 'Z' ? *from - 'A' + 'a' : *from);
		from++;
	}
	*text = '\0';
}

char *
domain_sanitize(const char *entry)
{
	char	   *pattern = trim(entry);
	const char *host;

	lower_case(pattern);
	host = domain_is_wildcard(pattern) ? pattern + 2 : pattern;
	if (count_labels(host, false) < 2 || is_ipv4_literal(host) || domain_overlaps_internal(pattern))
		return NULL;
	return pattern;
}
