/*
 * compat.h
 *	  What differs between PostgreSQL 14 and 18, in one place.
 */
#ifndef SPRITE_COMPAT_H
#define SPRITE_COMPAT_H

#if PG_VERSION_NUM < 140000
#error "sprite_lockdown needs PostgreSQL 14 or later"
#endif

/* 18 has this under the name that C23 gave it, and without the old one. */
#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()
#endif

/* 16 has one function for the privileges on all kinds of objects. */
#if PG_VERSION_NUM >= 160000
#define foreign_server_aclcheck(server, role, mode) \
	object_aclcheck(ForeignServerRelationId, server, role, mode)
#else
#define foreign_server_aclcheck(server, role, mode) \
	pg_foreign_server_aclcheck(server, role, mode)
#endif

/* 14 keeps the timeline in a variable. */
#if PG_VERSION_NUM >= 150000
#define current_timeline() GetWALInsertionTimeLine()
#else
#define current_timeline() ThisTimeLineID
#endif

/*
 * 17 lets a resource owner close a wait event set; ours is closed by the
 * memory context of its request on every version.
 */
#if PG_VERSION_NUM >= 170000
#define create_wait_event_set(nevents) CreateWaitEventSet(NULL, nevents)
#else
#define create_wait_event_set(nevents) CreateWaitEventSet(TopMemoryContext, nevents)
#endif

/* 17 lets an extension name what it waits for. */
#if PG_VERSION_NUM >= 170000
#define wait_event_id(name) WaitEventExtensionNew(name)
#else
#define wait_event_id(name) PG_WAIT_EXTENSION
#endif

#endif							/* SPRITE_COMPAT_H */
