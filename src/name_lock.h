/*
 * name_lock.h
 *	  The locks on a Sprite's name.
 *
 * All are held to the end of the transaction, or of a subtransaction that rolls
 * back, unless released before.  They honour lock_timeout and cancel.
 */
#ifndef SPRITE_NAME_LOCK_H
#define SPRITE_NAME_LOCK_H

/* Serialises the calls that may change the VM: hand-backs, destroys. */
extern void name_lock_call(const char *name);

/*
 * Keeps work in the VM and changes of the VM apart: whoever is about to change
 * it waits for the work that is under way, and the other way round.
 */
extern void name_lock_change(const char *name);
extern void name_lock_work(const char *name);
extern void name_unlock_work(const char *name);

#endif							/* SPRITE_NAME_LOCK_H */
