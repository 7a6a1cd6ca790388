/*
 * endpoint.h
 *	  Foreign server and user mapping: where the platform is and as whom we
 *	  speak to it.
 */
#ifndef SPRITE_ENDPOINT_H
#define SPRITE_ENDPOINT_H

typedef struct Endpoint
{
	Oid			server_oid;
	char	   *server_name;
	char	   *api_url;		/* no slash at the end */
	char	   *ca_file;		/* NULL: the system's trust store */
	char	   *credential;		/* cleared when the endpoint's memory goes */
} Endpoint;

/*
 * Resolves a foreign server of this extension for the current user.  The
 * endpoint lives in the current memory context.
 *
 * extension_schema is the namespace of the calling SQL function; the server's
 * wrapper must be the one whose validator lives there.
 *
 * Errors: 42704 no such server or no user mapping; 42501 no USAGE on the
 * server, or the token file is open to everybody; 42809 a server of another
 * wrapper, or a file that is not a regular one; 58P01 or 58030 when the token
 * file cannot be read; 22023 when it does not hold a token.
 */
extern Endpoint *endpoint_open(const char *server_name, Oid extension_schema);

#endif							/* SPRITE_ENDPOINT_H */
