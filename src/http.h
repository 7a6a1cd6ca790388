/*
 * http.h
 *	  One interruptible request at a time over connections that the backend
 *	  keeps open.
 *
 * What the network or the server does is reported in the reply, never raised.
 * Raised are: cancel, terminate and the like by the core; 53200 out of memory;
 * 53000 no descriptors; 22023 for a request that must not be sent.
 */
#ifndef SPRITE_HTTP_H
#define SPRITE_HTTP_H

typedef enum HttpOutcome
{
	HTTP_REPLIED,				/* a whole reply; its status says what it means */
	HTTP_NOT_SENT,				/* no connection: the server has not seen the request */
	HTTP_LOST,					/* sent, at least in part, and no whole reply */
	HTTP_TOO_LARGE,				/* headers or body over the limit; not kept */
	HTTP_MALFORMED				/* the reply is not HTTP */
} HttpOutcome;

typedef struct HttpRequest
{
	const char *method;
	const char *url;			/* absolute and percent-encoded */
	const char *bearer;			/* credential, or NULL */
	const char *ca_file;		/* NULL: the system's trust store */
	const char *accept;
	const char *content_type;	/* NULL: no body */
	const void *body;
	size_t		body_len;
	int			connect_timeout;	/* ms */
	int			timeout;		/* ms, over all */
	size_t		max_body;		/* bytes of reply body */
	bool		interruptible;	/* false for an undo, which only time bounds */
} HttpRequest;

typedef struct HttpReply
{
	HttpOutcome outcome;
	bool		timed_out;
	const char *stage;			/* resolve, connect, tls, send, wait, receive */
	char	   *error;			/* NULL when replied; never holds the credential */
	long		status;			/* 0: none was received */
	char	   *body;			/* NUL-terminated, "" when there is none */
	size_t		body_len;
	char	   *content_type;	/* NULL: none */
	char	   *request_id;		/* Fly-Request-Id, printable ASCII, or NULL */
	int64		retry_after;	/* seconds; -1: none or nonsense */
	bool		framed;			/* the end of the body is known to be its end */
} HttpReply;

/* Performs the request.  The reply lives in the current memory context. */
extern HttpReply *http_perform(const HttpRequest *request);

/* Waits.  Cancel and the like end the wait with an error. */
extern void http_sleep(int ms);

/* Percent-encodes all but RFC 3986's unreserved characters. */
extern char *http_escape_segment(const char *text);

/*
 * True for a base URL that may be spoken to: https, or http to loopback; no
 * user, query or fragment.  *problem is a phrase otherwise.
 */
extern bool http_check_url(const char *url, char **problem);

#endif							/* SPRITE_HTTP_H */
