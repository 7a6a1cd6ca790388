/*
 * name_lock.c
 *	  The locks on a Sprite's name.
 *
 * The foreign server is not part of the key, as two of them may lead to one
 * account.  The key is a hash, so two names may share a lock: that costs a
 * wait, never more.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lock.h"

#include "name_lock.h"

/* Tell our locks from those of pg_advisory_lock(), whose classes are 1 and 2. */
#define CALL_CLASS	3
#define WORK_CLASS	4

static void
make_tag(LOCKTAG *tag, const char *name, uint16 class)
{
	uint64		key = hash_bytes_extended((const unsigned char *) name, (int) strlen(name), 0);

	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (key >> 32), (uint32) key, class);
}

static void
call_context(void *arg)
{
	errcontext("while waiting for another transaction that holds Sprite \"%s\"",
			   (const char *) arg);
}

static void
work_context(void *arg)
{
	errcontext("while waiting for work in Sprite \"%s\", or for a change of it, to end",
			   (const char *) arg);
}

static void
acquire(const char *name, uint16 class, LOCKMODE mode, void (*in_context) (void *arg))
{
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = in_context,
		.arg = unconstify(char *, name)
	};
	LOCKTAG		tag;

	make_tag(&tag, name, class);
	error_context_stack = &context;
	(void) LockAcquire(&tag, mode, false, false);
	error_context_stack = context.previous;
}

void
name_lock_call(const char *name)
{
	acquire(name, CALL_CLASS, ExclusiveLock, call_context);
}

void
name_lock_change(const char *name)
{
	acquire(name, WORK_CLASS, ExclusiveLock, work_context);
}

void
name_lock_work(const char *name)
{
	acquire(name, WORK_CLASS, ShareLock, work_context);
}

void
name_unlock_work(const char *name)
{
	LOCKTAG		tag;

	make_tag(&tag, name, WORK_CLASS);
	(void) LockRelease(&tag, ShareLock, false);
}
