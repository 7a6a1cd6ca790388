/*
 * endpoint.c
 *	  Foreign server and user mapping: where the platform is and as whom we
 *	  speak to it.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/reloptions.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "endpoint.h"
#include "http.h"

/*
 * The platform's tokens are a few hundred bytes; a file that is much larger
 * is not a token file.
 */
#define MAX_TOKEN_BYTES 4096

/* An unknown option this far from a known one is taken for a slip of the pen. */
#define MAX_HINT_DISTANCE 4

typedef void (*OptionCheck) (const char *name, const char *value);

typedef struct EndpointOption
{
	const char *name;
	Oid			catalog;		/* which object may carry it */
	bool		superuser_only; /* it makes the server read files */
	OptionCheck check;
} EndpointOption;

static void check_api_url(const char *name, const char *value);
static void check_absolute_path(const char *name, const char *value);
static void check_token_option(const char *name, const char *value);

static const EndpointOption endpoint_options[] = {
	{"api_url", ForeignServerRelationId, false, check_api_url},
	{"ca_file", ForeignServerRelationId, true, check_absolute_path},
	{"token", UserMappingRelationId, false, check_token_option},
	{"token_file", UserMappingRelationId, true, check_absolute_path},
};

PG_FUNCTION_INFO_V1(sprite_lockdown_validator);

/* ------------------------------------------------------------------------
 * Validator
 * ------------------------------------------------------------------------
 */

static void
check_api_url(const char *name, const char *value)
{
	char	   *problem;

	if (!http_check_url(value, &problem))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": %s", name, problem),
				 errhint("Give the platform's address, like https://api.sprites.dev. Plain http is for loopback only.")));
}

static void
check_absolute_path(const char *name, const char *value)
{
	if (!is_absolute_path(value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": not an absolute path", name)));
}

/*
 * A token travels in a header.  Says what is wrong with it, never what it is.
 */
static const char *
token_problem(const char *token, size_t len)
{
	if (len == 0)
		return "it is empty";
	if (len > MAX_TOKEN_BYTES)
		return "it is too long";
	for (size_t i = 0; i < len; i++)
	{
		if (token[i] <= ' ' || token[i] > '~')
			return "it holds a blank, a control character or a character outside ASCII";
	}
	return NULL;
}

static void
check_token_option(const char *name, const char *value)
{
	const char *problem = token_problem(value, strlen(value));

	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": %s", name, problem)));
}

static const EndpointOption *
find_option(const char *name, Oid catalog)
{
	for (size_t i = 0; i < lengthof(endpoint_options); i++)
	{
		if (endpoint_options[i].catalog == catalog &&
			strcmp(endpoint_options[i].name, name) == 0)
			return &endpoint_options[i];
	}
	return NULL;
}

/* The known option that looks most like name, or NULL when none does. */
static const char *
closest_option(const char *name, Oid catalog)
{
	const char *closest = NULL;
	int			least = MAX_HINT_DISTANCE + 1;

	/* The distance function refuses longer strings, which no option is. */
	if (strlen(name) >= NAMEDATALEN)
		return NULL;
	for (size_t i = 0; i < lengthof(endpoint_options); i++)
	{
		const char *known = endpoint_options[i].name;
		int			distance;

		if (endpoint_options[i].catalog != catalog)
			continue;
		distance = varstr_levenshtein_less_equal(name, (int) strlen(name),
												 known, (int) strlen(known),
												 1, 1, 1, MAX_HINT_DISTANCE, false);
		if (distance < least && distance <= (int) strlen(known) / 2)
		{
			least = distance;
			closest = known;
		}
	}
	return closest;
}

static bool
catalog_has_options(Oid catalog)
{
	for (size_t i = 0; i < lengthof(endpoint_options); i++)
	{
		if (endpoint_options[i].catalog == catalog)
			return true;
	}
	return false;
}

static void
refuse_unknown_option(const char *name, Oid catalog)
{
	const char *closest = closest_option(name, catalog);

	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", name),
			 closest ? errhint("Perhaps you meant the option \"%s\".", closest) :
			 catalog == ForeignServerRelationId ?
			 errhint("Options of a server are \"api_url\" and \"ca_file\".") :
			 catalog == UserMappingRelationId ?
			 errhint("Options of a user mapping are \"token\" and \"token_file\".") :
			 errhint("There are no valid options in this context.")));
}

static void
check_option(const DefElem *def, Oid catalog)
{
	const EndpointOption *option = find_option(def->defname, catalog);

	if (option == NULL)
		refuse_unknown_option(def->defname, catalog);
	else
	{
		if (option->superuser_only && !superuser())
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to set option \"%s\"", option->name),
					 errdetail("It names a file that the database server reads, so only superusers may set it.")));
		option->check(option->name, defGetString(unconstify(DefElem *, def)));
	}
}

static const char *
option_value(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *def = lfirst_node(DefElem, cell);

		if (strcmp(def->defname, name) == 0)
			return defGetString(def);
	}
	return NULL;
}

static void
require_whole_options(List *options, Oid catalog)
{
	bool		has_token = option_value(options, "token") != NULL;
	bool		has_file = option_value(options, "token_file") != NULL;

	if (catalog == ForeignServerRelationId && option_value(options, "api_url") == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("option \"api_url\" is required for a server of sprite_lockdown")));
	if (catalog != UserMappingRelationId)
		return;
	if (has_token && has_file)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("options \"token\" and \"token_file\" exclude each other")));
	if (!has_token && !has_file)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("either \"token\" or \"token_file\" is required for a user mapping of sprite_lockdown")));
}

Datum
sprite_lockdown_validator(PG_FUNCTION_ARGS)
{
	List	   *options = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);
	ListCell   *cell;

	foreach(cell, options)
		check_option(lfirst_node(DefElem, cell), catalog);
	if (catalog_has_options(catalog))
		require_whole_options(options, catalog);
	PG_RETURN_VOID();
}

/* ------------------------------------------------------------------------
 * Endpoint
 * ------------------------------------------------------------------------
 */

static void
clear_credential(void *arg)
{
	Endpoint   *endpoint = arg;

	if (endpoint->credential != NULL)
		explicit_bzero(endpoint->credential, strlen(endpoint->credential));
	endpoint->credential = NULL;
}

/*
 * The SQLSTATE of a path that cannot be opened, where errcode_for_file_access()
 * has none but that of an internal error; otherwise 0.
 */
static int
sqlstate_of_open(int error)
{
	switch (error)
	{
		case ENXIO:				/* a socket, or a device without driver */
		case ENODEV:
			return ERRCODE_WRONG_OBJECT_TYPE;
		case ELOOP:
		case ENAMETOOLONG:
			return ERRCODE_UNDEFINED_FILE;
		default:
			return 0;
	}
}

/* Opens a token file and sees to it that it is one.  Errors name the path. */
static int
open_token_file(const char *path, struct stat *status)
{
	/* O_NONBLOCK, or opening a FIFO would wait for its writer. */
	int			fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);
	int			sqlstate = fd < 0 ? sqlstate_of_open(errno) : 0;

	if (fd < 0)
		ereport(ERROR,
				(sqlstate != 0 ? errcode(sqlstate) : errcode_for_file_access(),
				 errmsg("could not open token file \"%s\": %m", path)));
	if (fstat(fd, status) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat token file \"%s\": %m", path)));
	if (!S_ISREG(status->st_mode))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("token file \"%s\" is not a regular file", path)));
	if (status->st_mode & (S_IRWXO | S_IWGRP))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("token file \"%s\" has group or world access", path),
				 errdetail("Its mode is %04o.", (unsigned int) (status->st_mode & 07777)),
				 errhint("Make it readable by the database server's user alone, or by its group: chmod 0600 or 0640.")));
	return fd;
}

/*
 * Reads the file anew at each call, so that a rotated token needs no reload.
 * One newline at the end is what an editor or a secret store adds.
 */
static char *
read_token_file(const char *path)
{
	struct stat status;
	int			fd = open_token_file(path, &status);
	char	   *token;
	ssize_t		len;
	const char *problem;

	if (status.st_size > MAX_TOKEN_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("token file \"%s\" does not hold a token: it is too long", path)));
	token = palloc0(MAX_TOKEN_BYTES + 1);
	len = read(fd, token, MAX_TOKEN_BYTES);
	if (len < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read token file \"%s\": %m", path)));
	CloseTransientFile(fd);

	if (len > 0 && token[len - 1] == '\n')
		token[--len] = '\0';
	if (len > 0 && token[len - 1] == '\r')
		token[--len] = '\0';
	problem = token_problem(token, len);
	if (problem != NULL)
	{
		explicit_bzero(token, MAX_TOKEN_BYTES);
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("token file \"%s\" does not hold a token: %s", path, problem)));
	}
	return token;
}

/*
 * OpenSSL opens the file, and waits for a FIFO's writer where no interrupt
 * reaches it.  What else may be wrong with the file is told when it is used.
 */
static void
check_ca_file(const char *path)
{
	struct stat status;

	if (path != NULL && stat(path, &status) == 0 && !S_ISREG(status.st_mode))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("CA file \"%s\" is not a regular file", path)));
}

/* A copy without slashes at the end, since paths begin with one. */
static char *
copy_url(const char *url)
{
	char	   *copy = pstrdup(url);

	for (size_t len = strlen(copy); len > 0 && copy[len - 1] == '/'; len--)
		copy[len - 1] = '\0';
	return copy;
}

/* The wrapper is known by its validator: its name is the owner's to change. */
static void
require_our_wrapper(const ForeignServer *server, Oid extension_schema)
{
	ForeignDataWrapper *wrapper = GetForeignDataWrapper(server->fdwid);
	char	   *validator = OidIsValid(wrapper->fdwvalidator) ?
		get_func_name(wrapper->fdwvalidator) : NULL;

	if (validator == NULL || strcmp(validator, "sprite_lockdown_validator") != 0 ||
		get_func_namespace(wrapper->fdwvalidator) != extension_schema)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("server \"%s\" does not belong to sprite_lockdown", server->servername),
				 errdetail("Its foreign-data wrapper is \"%s\".", wrapper->fdwname)));
}

static void
load_credential(Endpoint *endpoint)
{
	UserMapping *mapping = GetUserMapping(GetUserId(), endpoint->server_oid);
	ListCell   *cell;
	const char *path = option_value(mapping->options, "token_file");

	if (path != NULL)
		endpoint->credential = read_token_file(path);

	/* the list is our copy of the catalog's row, and must not outlive this */
	foreach(cell, mapping->options)
	{
		DefElem    *def = lfirst_node(DefElem, cell);
		char	   *value = defGetString(def);

		if (strcmp(def->defname, "token") != 0)
			continue;
		endpoint->credential = pstrdup(value);
		explicit_bzero(value, strlen(value));
	}
	if (endpoint->credential == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("user mapping for server \"%s\" has no token", endpoint->server_name)));
}

Endpoint *
endpoint_open(const char *server_name, Oid extension_schema)
{
	ForeignServer *server = GetForeignServerByName(server_name, false);
	Endpoint   *endpoint = palloc0(sizeof(Endpoint));
	MemoryContextCallback *callback = palloc0(sizeof(MemoryContextCallback));
	AclResult	allowed = foreign_server_aclcheck(server->serverid, GetUserId(), ACL_USAGE);
	const char *url = option_value(server->options, "api_url");
	const char *ca_file = option_value(server->options, "ca_file");

	if (allowed != ACLCHECK_OK)
		aclcheck_error(allowed, OBJECT_FOREIGN_SERVER, server->servername);
	require_our_wrapper(server, extension_schema);
	if (url == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("server \"%s\" has no option \"api_url\"", server->servername)));

	/* checked again: the catalog may have been written without the validator */
	check_api_url("api_url", url);
	check_ca_file(ca_file);

	callback->func = clear_credential;
	callback->arg = endpoint;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);

	endpoint->server_oid = server->serverid;
	endpoint->server_name = pstrdup(server->servername);
	endpoint->api_url = copy_url(url);
	endpoint->ca_file = ca_file ? pstrdup(ca_file) : NULL;
	load_credential(endpoint);
	return endpoint;
}
