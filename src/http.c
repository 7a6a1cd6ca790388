/*
 * http.c
 *	  One interruptible request at a time over connections that the backend
 *	  keeps open.
 *
 * libcurl's multi interface names the sockets and the time it waits for; we
 * wait for them together with the latch and the postmaster's death, so that an
 * interrupt is served whatever libcurl is busy with.  libcurl's callbacks note
 * what they are told and return: an error raised in one would jump out of
 * libcurl and leave its state undefined.
 */
#include "postgres.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "http.h"

#define USER_AGENT "sprite_lockdown/1.0"

/*
 * Idle connections that are kept.  A backend speaks to one server as a rule,
 * one request at a time.
 */
#define MAX_KEPT_CONNECTIONS	2

/*
 * Sockets that libcurl may ask us to watch at once: an attempt for each address
 * family, and the resolver's, of which c-ares has up to 16.
 */
#define MAX_SOCKETS				20

/*
 * Descriptors we may hold beside PostgreSQL's own: the kept connections, the
 * multi handle's pair of sockets, and a pair of the resolver's or an attempt for
 * each address family.  A wait event set counts its own.
 */
#define EXTERNAL_DESCRIPTORS	(MAX_KEPT_CONNECTIONS + 4)

/*
 * All header lines of a reply together, interim replies included.  The platform
 * sends under 1 KB.
 */
#define MAX_HEADER_BYTES		65536
#define MAX_HEADER_VALUE		256

#define FIRST_BODY_BYTES		4096

/* The longest sleep if libcurl names no time, which it does not do in a request. */
#define MAX_WAIT_MS				1000

#define WAIT_EVENT_NAME			"SpriteLockdownPlatform"

/* Longest Retry-After that is taken seriously: a day. */
#define MAX_RETRY_AFTER			86400

typedef struct Transfer
{
	const HttpRequest *request;
	CURL	   *easy;
	struct curl_slist *headers;
	bool		added;			/* to the multi handle */
	bool		has_body;
	size_t		body_sent;
	int			attempts;
	bool		connected;
	bool		repeat_refused;
	bool		done;
	CURLcode	code;			/* once done */
	char		error[CURL_ERROR_SIZE];

	/* the reply, in malloc'd memory as callbacks must not palloc */
	char	   *body;
	size_t		body_len;
	size_t		body_size;
	size_t		header_bytes;
	bool		too_large;
	bool		out_of_memory;
	bool		is_interim;		/* the head is a 1xx, and another follows */
	bool		head_ended;
	bool		has_length;
	bool		is_chunked;
	char		content_type[MAX_HEADER_VALUE];
	char		request_id[MAX_HEADER_VALUE];
	char		retry_after[MAX_HEADER_VALUE];

	MemoryContextCallback callback;
} Transfer;

typedef struct WatchedSocket
{
	curl_socket_t fd;
	int			what;			/* CURL_POLL_* */
} WatchedSocket;

/*
 * The backend's one multi handle and what it wants waited for.  It keeps the
 * connections; it is made on first use, since libcurl must not be initialised
 * in a process that forks.
 */
static CURLM *multi = NULL;
static WatchedSocket sockets[MAX_SOCKETS];
static int	nsockets = 0;
static bool sockets_changed = false;
static bool too_many_sockets = false;
static int64 timer_at = 0;		/* by now_us(); 0: libcurl has set no timer */
static WaitEventSet *wait_set = NULL;
static bool wait_set_exits = false; /* on the postmaster's death */

/* The sockets of the connections that libcurl keeps. */
static curl_socket_t kept_sockets[MAX_SOCKETS];
static int	nkept = 0;

/* The request in flight; one that an error left behind until it is freed. */
static Transfer *current = NULL;

/*
 * Microseconds on a clock that nobody sets.  If the time of day stepped back, a
 * request that only time bounds would go on for as long as the step.
 */
static int64
now_us(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* ------------------------------------------------------------------------
 * Signals
 * ------------------------------------------------------------------------
 */

/*
 * libcurl resolves names in a thread.  A thread inherits the signal mask, and
 * PostgreSQL's handlers must run in the main thread only, so every call that
 * may start one is made with all signals blocked.  Such calls do not wait.
 */
static void
block_signals(sigset_t *saved)
{
	sigset_t	all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, saved);
}

static void
restore_signals(const sigset_t *saved)
{
	pthread_sigmask(SIG_SETMASK, saved, NULL);
}

/* ------------------------------------------------------------------------
 * Callbacks.  No ereport and no palloc here.
 * ------------------------------------------------------------------------
 */

static bool
has_passed(Transfer *transfer, CURLINFO time)
{
	curl_off_t	microseconds = 0;

	return curl_easy_getinfo(transfer->easy, time, &microseconds) == CURLE_OK &&
		microseconds > 0;
}

static int
on_socket(CURL *easy pg_attribute_unused(), curl_socket_t fd, int what,
		  void *arg pg_attribute_unused(), void *socket_arg pg_attribute_unused())
{
	int			i = 0;

	sockets_changed = true;

	/* what is to be connected is waited for to take data, not to bring any */
	if (current != NULL && (what & CURL_POLL_IN) &&
		has_passed(current, CURLINFO_NAMELOOKUP_TIME_T))
		current->connected = true;
	while (i < nsockets && sockets[i].fd != fd)
		i++;
	if (what == CURL_POLL_REMOVE)
	{
		if (i < nsockets)
			sockets[i] = sockets[--nsockets];
		return 0;
	}
	if (i == MAX_SOCKETS)
	{
		too_many_sockets = true;
		return 0;
	}
	sockets[i].fd = fd;
	sockets[i].what = what;
	if (i == nsockets)
		nsockets++;
	return 0;
}

static int
on_timer(CURLM *handle pg_attribute_unused(), long timeout_ms, void *arg pg_attribute_unused())
{
	timer_at = timeout_ms < 0 ? 0 : now_us() + (int64) timeout_ms * 1000;
	return 0;
}

static int
on_new_socket(void *arg pg_attribute_unused(), curl_socket_t fd,
			  curlsocktype purpose pg_attribute_unused())
{
	/* a kept connection is not for what COPY ... PROGRAM starts */
	return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? CURL_SOCKOPT_ERROR : CURL_SOCKOPT_OK;
}

/* Not every libcurl tells of sockets that never got connected; those are not kept. */
static int
on_close(void *arg pg_attribute_unused(), curl_socket_t fd)
{
	for (int i = 0; i < nkept; i++)
	{
		if (kept_sockets[i] == fd)
		{
			kept_sockets[i] = kept_sockets[--nkept];
			break;
		}
	}
	return close(fd);
}

static size_t
on_send(char *buffer, size_t size, size_t n, void *arg)
{
	Transfer   *transfer = arg;
	size_t		len = Min(size * n, transfer->request->body_len - transfer->body_sent);

	memcpy(buffer, (const char *) transfer->request->body + transfer->body_sent, len);
	transfer->body_sent += len;
	return len;
}

/*
 * libcurl sends a request again by itself when a kept connection breaks before
 * the reply.  What a POST has done by then only our caller can find out, so its
 * second attempt is refused, and its body is said not to be there a second time,
 * whichever libcurl asks for first.  GET and DELETE are repeated: they may be.
 */
static int
on_rewind(void *arg, curl_off_t offset pg_attribute_unused(), int origin pg_attribute_unused())
{
	Transfer   *transfer = arg;

	transfer->repeat_refused = true;
	return CURL_SEEKFUNC_FAIL;
}

#if LIBCURL_VERSION_NUM >= 0x075000
static int
on_attempt(void *arg, char *peer_ip pg_attribute_unused(), char *local_ip pg_attribute_unused(),
		   int peer_port pg_attribute_unused(), int local_port pg_attribute_unused())
{
	Transfer   *transfer = arg;

	if (++transfer->attempts == 1 || !transfer->has_body)
		return CURL_PREREQFUNC_OK;
	transfer->repeat_refused = true;
	return CURL_PREREQFUNC_ABORT;
}
#endif

static size_t
on_body(char *data, size_t size, size_t n, void *arg)
{
	Transfer   *transfer = arg;
	size_t		len = size * n;
	size_t		needed = transfer->body_len + len;

	if (needed > transfer->request->max_body)
	{
		transfer->too_large = true;
		return 0;
	}
	if (needed > transfer->body_size)
	{
		size_t		grown = Max(transfer->body_size * 2, Max(needed, FIRST_BODY_BYTES));
		char	   *moved;

		grown = Min(grown, transfer->request->max_body);
		moved = realloc(transfer->body, grown);

		if (moved == NULL)
		{
			transfer->out_of_memory = true;
			return 0;
		}
		transfer->body = moved;
		transfer->body_size = grown;
	}
	memcpy(transfer->body + transfer->body_len, data, len);
	transfer->body_len = needed;
	return len;
}

/* If line is the named header, keeps its value without the blanks around it. */
static bool
take_header(const char *line, size_t len, const char *name, char *value)
{
	size_t		name_len = strlen(name);
	size_t		value_len;

	if (len <= name_len || line[name_len] != ':' || pg_strncasecmp(line, name, name_len) != 0)
		return false;
	line += name_len + 1;
	len -= name_len + 1;
	while (len > 0 && (*line == ' ' || *line == '\t'))
	{
		line++;
		len--;
	}
	while (len > 0 && (unsigned char) line[len - 1] <= ' ')
		len--;
	value_len = Min(len, MAX_HEADER_VALUE - 1);
	for (size_t i = 0; i < value_len; i++)
		value[i] = (char) (line[i] >= ' ' && line[i] <= '~' ? line[i] : '?');
	value[value_len] = '\0';
	return true;
}

/* A status line begins a head: what an interim reply has said is void. */
static void
begin_head(Transfer *transfer, const char *line, size_t len)
{
	const char *space = memchr(line, ' ', len);

	transfer->is_interim = space != NULL && space + 1 < line + len && space[1] == '1';
	transfer->head_ended = false;
	transfer->has_length = false;
	transfer->is_chunked = false;
	transfer->content_type[0] = '\0';
	transfer->request_id[0] = '\0';
	transfer->retry_after[0] = '\0';
}

static size_t
on_header(char *data, size_t size, size_t n, void *arg)
{
	Transfer   *transfer = arg;
	size_t		len = size * n;
	char		value[MAX_HEADER_VALUE];

	transfer->header_bytes += len;
	if (transfer->header_bytes > MAX_HEADER_BYTES)
	{
		transfer->too_large = true;
		return 0;
	}
	if (transfer->head_ended && !transfer->is_interim)
		return len;				/* a trailer, which says nothing about the body */
	if (len >= 5 && memcmp(data, "HTTP/", 5) == 0)
		begin_head(transfer, data, len);
	else if (len > 0 && (data[0] == '\r' || data[0] == '\n'))
		transfer->head_ended = true;
	else if (take_header(data, len, "Content-Length", value))
		transfer->has_length = true;
	else if (take_header(data, len, "Transfer-Encoding", value))
		transfer->is_chunked = pg_strcasecmp(value, "chunked") == 0;
	else if (!take_header(data, len, "Content-Type", transfer->content_type) &&
			 !take_header(data, len, "Fly-Request-Id", transfer->request_id))
		(void) take_header(data, len, "Retry-After", transfer->retry_after);
	return len;
}

/* ------------------------------------------------------------------------
 * Multi handle
 * ------------------------------------------------------------------------
 */

pg_noreturn static void
raise_curl(const char *what, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_ERROR),
			 errmsg("libcurl failed to %s: %s", what, why)));
	pg_unreachable();
}

static void
raise_out_of_memory(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory"),
			 errdetail("libcurl could not allocate memory.")));
}

/* Takes part in PostgreSQL's count of open files, once for the backend. */
static void
reserve_descriptors(void)
{
	for (int i = 0; i < EXTERNAL_DESCRIPTORS; i++)
	{
		if (AcquireExternalFD())
			continue;
		while (i-- > 0)
			ReleaseExternalFD();
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("too many open files for a connection to the platform"),
				 errhint("Raise the server's max_files_per_process and its operating-system limits.")));
	}
}

static void
set_multi_options(CURLM *handle)
{
	CURLMcode	code = curl_multi_setopt(handle, CURLMOPT_SOCKETFUNCTION, on_socket);

	if (code == CURLM_OK)
		code = curl_multi_setopt(handle, CURLMOPT_TIMERFUNCTION, on_timer);
	if (code == CURLM_OK)
		code = curl_multi_setopt(handle, CURLMOPT_MAXCONNECTS, (long) MAX_KEPT_CONNECTIONS);
#if LIBCURL_VERSION_NUM >= 0x081400
	/* closing it does not wait for the resolver's threads */
	if (code == CURLM_OK)
		code = curl_multi_setopt(handle, CURLMOPT_QUICK_EXIT, 1L);
#endif
	if (code != CURLM_OK)
	{
		curl_multi_cleanup(handle);
		raise_curl("set an option", curl_multi_strerror(code));
	}
}

static void
open_multi(void)
{
	static bool initialised = false;
	static bool reserved = false;
	CURLM	   *handle;
	CURLcode	code;

	if (multi != NULL)
		return;
	if (!initialised)
	{
		code = curl_global_init(CURL_GLOBAL_DEFAULT);
		if (code != CURLE_OK)
			raise_curl("initialise", curl_easy_strerror(code));
		initialised = true;
	}
	if (!reserved)
		reserve_descriptors();
	reserved = true;

	handle = curl_multi_init();
	if (handle == NULL)
		raise_out_of_memory();
	set_multi_options(handle);
	multi = handle;
}

/*
 * Nothing may come in on a connection that waits for a request.  What does is
 * its end, or a reply to nobody (a time-out's, say, or a proxy's second one),
 * which libcurl before 8.0 takes for the reply to the next request.
 */
static bool
kept_connection_spoke(void)
{
	struct pollfd polled[MAX_SOCKETS];

	for (int i = 0; i < nkept; i++)
	{
		polled[i].fd = kept_sockets[i];
		polled[i].events = POLLIN;
		polled[i].revents = 0;
	}
	return nkept > 0 && poll(polled, nkept, 0) != 0;
}

/* Notes the connection of a transfer that is done, if libcurl has kept it. */
static void
note_kept_connection(CURL *easy)
{
	curl_socket_t fd = CURL_SOCKET_BAD;

	(void) curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
	if (fd == CURL_SOCKET_BAD)
		return;
	for (int i = 0; i < nkept; i++)
	{
		if (kept_sockets[i] == fd)
			return;
	}
	if (nkept < MAX_SOCKETS)
		kept_sockets[nkept++] = fd;
}

/* Closes the connections that are kept.  None may be in use. */
static void
close_multi(void)
{
	sigset_t	saved;

	block_signals(&saved);
	curl_multi_cleanup(multi);
	restore_signals(&saved);
	multi = NULL;
	nsockets = 0;
	nkept = 0;
	timer_at = 0;
}

/* ------------------------------------------------------------------------
 * Transfer
 * ------------------------------------------------------------------------
 */

static void
close_wait_set(void)
{
	if (wait_set != NULL)
		FreeWaitEventSet(wait_set);
	wait_set = NULL;
}

static void
free_headers(Transfer *transfer)
{
	/* one of them holds the credential */
	for (struct curl_slist *item = transfer->headers; item != NULL; item = item->next)
		explicit_bzero(item->data, strlen(item->data));
	curl_slist_free_all(transfer->headers);
	transfer->headers = NULL;
}

/*
 * Frees all that a transfer owns.  Taking one that is not done from the multi
 * handle closes its connection, so an error leaves none behind that a late
 * reply could still arrive on.
 */
static void
free_transfer(void *arg)
{
	Transfer   *transfer = arg;
	sigset_t	saved;

	block_signals(&saved);
	if (transfer->added)
		curl_multi_remove_handle(multi, transfer->easy);
	transfer->added = false;
	if (transfer->easy != NULL)
		curl_easy_cleanup(transfer->easy);
	transfer->easy = NULL;
	restore_signals(&saved);
	if (current == transfer)
	{
		/* idle connections are not watched, so nothing is watched now */
		current = NULL;
		nsockets = 0;
		close_wait_set();
	}
	free_headers(transfer);
	free(transfer->body);
	transfer->body = NULL;
}

static void
check_option(CURLcode code)
{
	if (code == CURLE_OUT_OF_MEMORY)
		raise_out_of_memory();
	if (code != CURLE_OK)
		raise_curl("set an option", curl_easy_strerror(code));
}

#define SET_OPTION(transfer, option, value) \
	check_option(curl_easy_setopt((transfer)->easy, option, value))

/* Nothing that could end a header or begin another may get into one. */
static void
check_header_text(const char *text)
{
	for (; text != NULL && *text != '\0'; text++)
	{
		if ((unsigned char) *text < 0x20 || *text == 0x7F)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a control character cannot be sent in an HTTP header")));
	}
}

/*
 * Appends "name: value"; the copy that is made on the way is cleared.  It is made
 * in one piece: psprintf() would leave another behind if its first is too small.
 */
static void
add_header(Transfer *transfer, const char *name, const char *value)
{
	size_t		size = strlen(name) + strlen(value) + 1;
	struct curl_slist *list;
	char	   *line;

	check_header_text(value);
	line = palloc(size);
	snprintf(line, size, "%s%s", name, value);
	list = curl_slist_append(transfer->headers, line);
	explicit_bzero(line, size);
	pfree(line);
	if (list == NULL)
		raise_out_of_memory();
	transfer->headers = list;
}

static void
set_headers(Transfer *transfer)
{
	const HttpRequest *request = transfer->request;

	if (request->bearer != NULL)
		add_header(transfer, "Authorization: Bearer ", request->bearer);
	if (request->accept != NULL)
		add_header(transfer, "Accept: ", request->accept);

	/* without a value libcurl leaves out the header that it would add */
	if (request->content_type != NULL)
		add_header(transfer, "Content-Type: ", request->content_type);
	else
		add_header(transfer, "Content-Type:", "");
	add_header(transfer, "Expect:", "");
	SET_OPTION(transfer, CURLOPT_HTTPHEADER, transfer->headers);
}

static void
set_method(Transfer *transfer)
{
	const HttpRequest *request = transfer->request;

	transfer->has_body = request->body != NULL || strcmp(request->method, "POST") == 0;
	if (transfer->has_body)
	{
		SET_OPTION(transfer, CURLOPT_POST, 1L);
		SET_OPTION(transfer, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) request->body_len);
		SET_OPTION(transfer, CURLOPT_READFUNCTION, on_send);
		SET_OPTION(transfer, CURLOPT_READDATA, transfer);
		SET_OPTION(transfer, CURLOPT_SEEKFUNCTION, on_rewind);
		SET_OPTION(transfer, CURLOPT_SEEKDATA, transfer);
#if LIBCURL_VERSION_NUM < 0x075000
		/* an empty body is never rewound: only on a new connection is it not repeated */
		SET_OPTION(transfer, CURLOPT_FRESH_CONNECT, request->body_len == 0 ? 1L : 0L);
#endif
	}
	else
		SET_OPTION(transfer, CURLOPT_HTTPGET, 1L);
	SET_OPTION(transfer, CURLOPT_CUSTOMREQUEST, request->method);
}

static void
set_safety(Transfer *transfer, bool is_https)
{
	const HttpRequest *request = transfer->request;

#if LIBCURL_VERSION_NUM >= 0x075500
	SET_OPTION(transfer, CURLOPT_PROTOCOLS_STR, is_https ? "https" : "http");
#else
	SET_OPTION(transfer, CURLOPT_PROTOCOLS, (long) (is_https ? CURLPROTO_HTTPS : CURLPROTO_HTTP));
#endif
	SET_OPTION(transfer, CURLOPT_FOLLOWLOCATION, 0L);
	SET_OPTION(transfer, CURLOPT_SSL_VERIFYPEER, 1L);
	SET_OPTION(transfer, CURLOPT_SSL_VERIFYHOST, 2L);
	SET_OPTION(transfer, CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_2);
	if (request->ca_file != NULL)
	{
		SET_OPTION(transfer, CURLOPT_CAINFO, request->ca_file);
		SET_OPTION(transfer, CURLOPT_CAPATH, NULL);
	}

	/* an empty proxy is none, whatever the environment says */
	SET_OPTION(transfer, CURLOPT_PROXY, "");
	SET_OPTION(transfer, CURLOPT_NETRC, (long) CURL_NETRC_IGNORED);
	SET_OPTION(transfer, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	SET_OPTION(transfer, CURLOPT_PATH_AS_IS, 1L);
	SET_OPTION(transfer, CURLOPT_HTTP09_ALLOWED, 0L);

	/* nothing is unpacked, so what is counted is what arrives */
	SET_OPTION(transfer, CURLOPT_HTTP_CONTENT_DECODING, 0L);
	SET_OPTION(transfer, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t) request->max_body);

	/* exec replies are framed by chunks, which HTTP/2 does not have */
	SET_OPTION(transfer, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
}

static void
set_transport(Transfer *transfer)
{
	const HttpRequest *request = transfer->request;

	SET_OPTION(transfer, CURLOPT_NOSIGNAL, 1L);
	SET_OPTION(transfer, CURLOPT_SOCKOPTFUNCTION, on_new_socket);
	SET_OPTION(transfer, CURLOPT_CLOSESOCKETFUNCTION, on_close);

	/* to libcurl zero is no limit */
	SET_OPTION(transfer, CURLOPT_CONNECTTIMEOUT_MS, (long) Max(request->connect_timeout, 1));
	SET_OPTION(transfer, CURLOPT_TIMEOUT_MS, (long) Max(request->timeout, 1));
	SET_OPTION(transfer, CURLOPT_TCP_NODELAY, 1L);
	SET_OPTION(transfer, CURLOPT_TCP_KEEPALIVE, 1L);
	SET_OPTION(transfer, CURLOPT_USERAGENT, USER_AGENT);

	/*
	 * Taking a request away must not wait for its resolver thread.  Before 7.87
	 * it does, and a cancel during name resolution takes as long as the
	 * resolver.
	 */
#if LIBCURL_VERSION_NUM >= 0x075700
	SET_OPTION(transfer, CURLOPT_QUICK_EXIT, 1L);
#endif
}

static void
set_callbacks(Transfer *transfer)
{
	SET_OPTION(transfer, CURLOPT_ERRORBUFFER, transfer->error);
	SET_OPTION(transfer, CURLOPT_WRITEFUNCTION, on_body);
	SET_OPTION(transfer, CURLOPT_WRITEDATA, transfer);
	SET_OPTION(transfer, CURLOPT_HEADERFUNCTION, on_header);
	SET_OPTION(transfer, CURLOPT_HEADERDATA, transfer);
#if LIBCURL_VERSION_NUM >= 0x075000
	SET_OPTION(transfer, CURLOPT_PREREQFUNCTION, on_attempt);
	SET_OPTION(transfer, CURLOPT_PREREQDATA, transfer);
#endif
}

/* Makes a transfer that the context owns: however it ends, it is freed. */
static Transfer *
make_transfer(MemoryContext context, const HttpRequest *request)
{
	Transfer   *transfer = MemoryContextAllocZero(context, sizeof(Transfer));

	transfer->request = request;
	transfer->callback.func = free_transfer;
	transfer->callback.arg = transfer;
	MemoryContextRegisterResetCallback(context, &transfer->callback);

	check_header_text(request->url);
	transfer->easy = curl_easy_init();
	if (transfer->easy == NULL)
		raise_out_of_memory();
	SET_OPTION(transfer, CURLOPT_URL, request->url);
	set_headers(transfer);
	set_method(transfer);
	set_safety(transfer, pg_strncasecmp(request->url, "https:", 6) == 0);
	set_transport(transfer);
	set_callbacks(transfer);
	return transfer;
}

static void
start_transfer(Transfer *transfer)
{
	sigset_t	saved;
	CURLMcode	code;

	block_signals(&saved);
	code = curl_multi_add_handle(multi, transfer->easy);
	restore_signals(&saved);
	if (code != CURLM_OK)
		raise_curl("start a request", curl_multi_strerror(code));
	transfer->added = true;
	current = transfer;
}

/* ------------------------------------------------------------------------
 * Loop
 * ------------------------------------------------------------------------
 */

static uint32
socket_events(int what)
{
	switch (what)
	{
		case CURL_POLL_IN:
			return WL_SOCKET_READABLE;
		case CURL_POLL_OUT:
			return WL_SOCKET_WRITEABLE;
		case CURL_POLL_INOUT:
			return WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE;
		default:
			return 0;
	}
}

/* An event cannot be taken out of a wait event set, so a new one is made. */
static void
build_wait_set(bool interruptible)
{
	close_wait_set();
	wait_set = create_wait_event_set(MAX_SOCKETS + 2);
	wait_set_exits = interruptible;
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	if (IsUnderPostmaster)
		AddWaitEventToSet(wait_set, interruptible ? WL_EXIT_ON_PM_DEATH : WL_POSTMASTER_DEATH,
						  PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < nsockets; i++)
	{
		uint32		events = socket_events(sockets[i].what);

		if (events != 0)
			AddWaitEventToSet(wait_set, events, sockets[i].fd, NULL, NULL);
	}
	sockets_changed = false;
}

/* Milliseconds until libcurl wants to be called, rounded up. */
static long
wait_time(void)
{
	int64		now = now_us();

	if (timer_at == 0)
		return MAX_WAIT_MS;
	return timer_at <= now ? 0 : (long) Min((timer_at - now + 999) / 1000, MAX_WAIT_MS);
}

static uint32
wait_event(void)
{
	static uint32 id = 0;

	if (id == 0)
		id = wait_event_id(WAIT_EVENT_NAME);
	return id;
}

static void
run_socket(curl_socket_t fd, int events)
{
	sigset_t	saved;
	int			running;
	CURLMcode	code;

	block_signals(&saved);
	code = curl_multi_socket_action(multi, fd, events, &running);
	restore_signals(&saved);
	if (code != CURLM_OK)
		raise_curl("drive a request", curl_multi_strerror(code));
	if (too_many_sockets)
	{
		too_many_sockets = false;
		raise_curl("drive a request", "it opened too many sockets");
	}
}

static void
run_event(const WaitEvent *event)
{
	int			events = 0;

	if (event->events & WL_SOCKET_READABLE)
		events |= CURL_CSELECT_IN;
	if (event->events & WL_SOCKET_WRITEABLE)
		events |= CURL_CSELECT_OUT;
	if (events != 0)
		run_socket(event->fd, events);
}

static void
run_timer(void)
{
	if (timer_at != 0 && timer_at <= now_us())
	{
		timer_at = 0;
		run_socket(CURL_SOCKET_TIMEOUT, 0);
	}
}

/* Notes the end of the transfer, if it has ended. */
static void
read_messages(Transfer *transfer)
{
	CURLMsg    *message;
	int			remaining;

	while ((message = curl_multi_info_read(multi, &remaining)) != NULL)
	{
		if (message->msg == CURLMSG_DONE && message->easy_handle == transfer->easy)
		{
			transfer->done = true;
			transfer->code = message->data.result;
		}
	}
}

/*
 * Waits once and serves what came.  False when an uninterruptible request must
 * be given up because the postmaster is gone.
 */
static bool
wait_and_serve(bool interruptible, bool *latch_was_set)
{
	WaitEvent	occurred[MAX_SOCKETS + 2];
	int			n;

	if (wait_set == NULL || sockets_changed || wait_set_exits != interruptible)
		build_wait_set(interruptible);
	n = WaitEventSetWait(wait_set, wait_time(), occurred, lengthof(occurred), wait_event());
	for (int i = 0; i < n; i++)
	{
		if (occurred[i].events & WL_POSTMASTER_DEATH)
			return false;
		if (occurred[i].events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			*latch_was_set = true;
		}
		else
			run_event(&occurred[i]);
	}
	run_timer();
	return true;
}

static void
run_transfer(Transfer *transfer)
{
	bool		interruptible = transfer->request->interruptible;
	bool		latch_was_set = false;

	while (!transfer->done)
	{
		if (interruptible)
			CHECK_FOR_INTERRUPTS();
		if (!wait_and_serve(interruptible, &latch_was_set))
		{
			transfer->done = true;
			transfer->code = CURLE_ABORTED_BY_CALLBACK;
			break;
		}
		read_messages(transfer);
	}

	/* whoever set the latch meanwhile has not been served by us */
	if (latch_was_set)
		SetLatch(MyLatch);
}

/* ------------------------------------------------------------------------
 * Reply
 * ------------------------------------------------------------------------
 */

static bool
was_sent(Transfer *transfer)
{
	long		bytes = 0;

	return curl_easy_getinfo(transfer->easy, CURLINFO_REQUEST_SIZE, &bytes) == CURLE_OK &&
		bytes > 0;
}

static bool
is_tls_failure(CURLcode code)
{
	switch (code)
	{
		case CURLE_SSL_CONNECT_ERROR:
		case CURLE_SSL_CERTPROBLEM:
		case CURLE_SSL_CIPHER:
		case CURLE_SSL_CACERT_BADFILE:
		case CURLE_PEER_FAILED_VERIFICATION:
			return true;
		default:
			return false;
	}
}

/*
 * How far the request came.  libcurl's own time of the connection is, in some
 * versions, that of the TLS connection.
 */
static const char *
stage_of(Transfer *transfer)
{
	bool		is_https = pg_strncasecmp(transfer->request->url, "https:", 6) == 0;

	if (transfer->header_bytes > 0)
		return "receive";
	if (transfer->repeat_refused)
		return "wait";			/* the second attempt has reset what was sent */
	if (was_sent(transfer))
	{
		curl_off_t	sent = 0;

		(void) curl_easy_getinfo(transfer->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
		return (size_t) sent < transfer->request->body_len ? "send" : "wait";
	}
	if (!has_passed(transfer, CURLINFO_NAMELOOKUP_TIME_T))
		return "resolve";
	if (is_tls_failure(transfer->code))
		return "tls";
	if (!transfer->connected && !has_passed(transfer, CURLINFO_CONNECT_TIME_T))
		return "connect";
	return is_https && !has_passed(transfer, CURLINFO_APPCONNECT_TIME_T) ? "tls" : "send";
}

static HttpOutcome
outcome_of(Transfer *transfer)
{
	if (transfer->too_large)
		return HTTP_TOO_LARGE;
	switch (transfer->code)
	{
		case CURLE_OK:
			/* libcurl takes a connection that closes amid the head for the head's end */
			return transfer->head_ended && !transfer->is_interim ? HTTP_REPLIED : HTTP_LOST;
		case CURLE_FILESIZE_EXCEEDED:
			return HTTP_TOO_LARGE;
		case CURLE_WEIRD_SERVER_REPLY:
		case CURLE_UNSUPPORTED_PROTOCOL:
			return was_sent(transfer) ? HTTP_MALFORMED : HTTP_NOT_SENT;
#if LIBCURL_VERSION_NUM >= 0x080600
		case CURLE_TOO_LARGE:
#endif
		case CURLE_OUT_OF_MEMORY:
			/* how libcurl refuses a header line of more than 100 KB, the former since 8.6 */
			return was_sent(transfer) ? HTTP_TOO_LARGE : HTTP_NOT_SENT;
		default:
			return was_sent(transfer) ? HTTP_LOST : HTTP_NOT_SENT;
	}
}

/* Seconds or a date, as RFC 9110 has it. */
static int64
parse_retry_after(const char *value)
{
	time_t		at;

	if (value[0] >= '0' && value[0] <= '9')
	{
		long		seconds = strtol(value, NULL, 10);

		return strspn(value, "0123456789") == strlen(value) ? Min(seconds, MAX_RETRY_AFTER) : -1;
	}
	if (value[0] == '\0' || (at = curl_getdate(value, NULL)) == (time_t) -1)
		return -1;
	return Min(Max((int64) (at - time(NULL)), 0), MAX_RETRY_AFTER);
}

/* Why there is no reply. */
static const char *
error_text(Transfer *transfer, HttpOutcome outcome)
{
	if (outcome == HTTP_TOO_LARGE)
		return "the reply passes a limit";
	if (transfer->repeat_refused)
		return "the connection was closed before a reply came";
	if (transfer->code == CURLE_OK)
		return "the connection was closed amid the head of the reply";
	return transfer->error[0] != '\0' ? transfer->error : curl_easy_strerror(transfer->code);
}

static char *
copy_unless_empty(const char *text)
{
	return text[0] == '\0' ? NULL : pstrdup(text);
}

static HttpReply *
make_reply(Transfer *transfer)
{
	HttpReply  *reply = palloc0(sizeof(HttpReply));
	bool		replied;

	if (transfer->out_of_memory)
		raise_out_of_memory();
	reply->outcome = outcome_of(transfer);
	replied = reply->outcome == HTTP_REPLIED;
	reply->timed_out = transfer->code == CURLE_OPERATION_TIMEDOUT;
	reply->stage = stage_of(transfer);
	if (!replied)
		reply->error = pstrdup(error_text(transfer, reply->outcome));
	(void) curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &reply->status);

	reply->body_len = replied ? transfer->body_len : 0;
	reply->body = palloc_extended(reply->body_len + 1, MCXT_ALLOC_HUGE);
	if (reply->body_len > 0)
		memcpy(reply->body, transfer->body, reply->body_len);
	reply->body[reply->body_len] = '\0';

	reply->content_type = copy_unless_empty(transfer->content_type);
	reply->request_id = copy_unless_empty(transfer->request_id);
	reply->retry_after = parse_retry_after(transfer->retry_after);
	reply->framed = transfer->has_length || transfer->is_chunked || reply->status == 204;
	return reply;
}

HttpReply *
http_perform(const HttpRequest *request)
{
	MemoryContext context;
	Transfer   *transfer;
	HttpReply  *reply;

	/* an undo runs while the request that failed is still in place */
	if (current != NULL)
		free_transfer(current);
	if (multi != NULL && kept_connection_spoke())
		close_multi();
	open_multi();

	context = AllocSetContextCreate(CurrentMemoryContext, "sprite_lockdown request",
									ALLOCSET_SMALL_SIZES);
	transfer = make_transfer(context, request);
	start_transfer(transfer);
	run_transfer(transfer);
	note_kept_connection(transfer->easy);
	reply = make_reply(transfer);
	MemoryContextDelete(context);
	return reply;
}

void
http_sleep(int ms)
{
	int64		until = now_us() + (int64) ms * 1000;

	for (;;)
	{
		long		left = (long) ((until - now_us() + 999) / 1000);

		CHECK_FOR_INTERRUPTS();
		if (left <= 0)
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 left, wait_event());
		ResetLatch(MyLatch);
	}
}
