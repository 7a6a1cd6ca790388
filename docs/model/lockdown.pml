/*
 * lockdown.pml
 *	  The order of a hand-back, with all that can go wrong around it.
 *
 * Two callers ask for one Sprite under policies of their choice, in transactions
 * of one or two calls with or without a savepoint.  Any step may fail or be
 * canceled, any reply may be lost before or after its effect, a push may be
 * accepted and not stored.  Behind their back the VM is replaced or deleted, the
 * server crashes, and a standby that misses the last commits takes over.
 *
 * The promise: a hand-back that returns names a VM that runs the asked-for policy.
 *
 * What the model takes for granted: a request has its effect before its reply, or
 * before its caller gives up, or never; the journal's order of entries for a name
 * is that in which they were written, as its lock sees to.
 *
 * Defences can be taken away, to see that the promise rests on them: NO_JOURNAL,
 * NO_READ_BACK, NO_IDENTITY, NO_EPOCH, NO_LOCK.  With SEEK_PROVEN the search is
 * for a call that is proven, to see that the model gets there.
 */

#define CALLERS		2
#define OPEN		0				/* what a new VM runs; policies are 1 and 2 */
#define NO_VM		0

#ifndef TRANSACTIONS
#define TRANSACTIONS	2			/* of each caller */
#endif
#ifndef REPLACEMENTS
#define REPLACEMENTS	1
#endif
#ifndef CRASHES
#define CRASHES		1
#endif
#ifndef FAILOVERS
#define FAILOVERS	1
#endif
/* more than are remembered at once, as SPIN checks */
#define MAX_VMS		12

/* ------------------------------------------------------------------------
 * The platform
 * ------------------------------------------------------------------------
 */
byte vm = NO_VM;					/* the instance that the name leads to */
byte runs[MAX_VMS];					/* each instance's policy, dead ones' too */

/* ------------------------------------------------------------------------
 * The database: the token on the row, and the newest entry of the journal, once
 * as committed, once as flushed, once as the standby has it
 * ------------------------------------------------------------------------
 */
#define NONE		0
#define INTENT		1
#define CONFIRMED	2

typedef Committed
{
	byte row_vm;
	byte row_policy;
	byte kind;
	byte entry_vm;
	byte entry_policy;
	byte entry_epoch;
};

Committed db;
Committed flushed;
Committed standby;
byte epoch = 1;
byte crashes = 0;
byte lock = 0;						/* whose; 0: nobody's */

/* what a caller's transaction has confirmed, and its call has seen and created */
Committed pending[CALLERS];
bool has_pending[CALLERS];
bool pending_is_newest[CALLERS];
byte seen[CALLERS];
byte created[CALLERS];
bool in_call[CALLERS];
bool lost[CALLERS];					/* the backend is gone */

/*
 * A new VM has an id that nobody remembers.  The platform never uses one again,
 * but with nobody to tell, that is the same, and keeps the states few.
 */
#define in(x, of_db)	(of_db.row_vm == x || of_db.entry_vm == x)
#define held(x, me)		(in(x, pending[me]) || seen[me] == x || created[me] == x)
#define remembered(x)	(vm == x || in(x, db) || in(x, flushed) || in(x, standby) || \
						 held(x, 0) || held(x, 1))

byte new = NO_VM;

inline new_vm()
{
	d_step
	{
		new = 1;
		do
		:: remembered(new) -> new++
		:: else -> break
		od;
		vm = new;
		runs[vm] = OPEN;
		printf("    the name leads to VM %d, which is open\n", vm);
		new = NO_VM
	}
}

inline copy(to, from)
{
	to.row_vm = from.row_vm;
	to.row_policy = from.row_policy;
	to.kind = from.kind;
	to.entry_vm = from.entry_vm;
	to.entry_policy = from.entry_policy;
	to.entry_epoch = from.entry_epoch;
}

/* Of no interest any more, so that states which differ in it are one. */
inline forget_entry(entry)
{
	entry.entry_vm = NO_VM;
	entry.entry_policy = OPEN;
	entry.entry_epoch = 0;
}

/* ------------------------------------------------------------------------
 * A caller.  What is atomic is what nobody else can come between to any effect:
 * an intent and the request after it, say, as the request may also have none.
 * ------------------------------------------------------------------------
 */

/* By a transaction of its own, flushed.  It is newer than what this one has confirmed. */
inline intend()
{
	db.kind = INTENT;
	forget_entry(db);
	copy(flushed, db);
	pending_is_newest[me] = false
}

/* What the newest entry that the transaction can see says of the VM. */
#ifdef NO_EPOCH
#define this_epoch(entry)	true
#else
#define this_epoch(entry)	(entry.entry_epoch == epoch)
#endif
#define confirms(entry)		(entry.kind == CONFIRMED && entry.entry_vm == seen[me] && \
							 entry.entry_policy == policy && this_epoch(entry))
#define row_of(of_db)		(of_db.row_vm == seen[me] && of_db.row_policy == policy)

#ifdef NO_JOURNAL
#define is_proven	(has_pending[me] -> row_of(pending[me]) : row_of(db))
#else
/* a caller may claim whatever token it likes: only the journal decides */
#define is_proven	((has_pending[me] && pending_is_newest[me]) -> confirms(pending[me]) : confirms(db))
#endif

/* What the transaction has recorded is void. */
inline forget_pending()
{
	has_pending[me] = false;
	pending_is_newest[me] = false;
	pending[me].row_vm = NO_VM;
	pending[me].row_policy = OPEN;
	pending[me].kind = NONE;
	forget_entry(pending[me])
}

inline unlock()
{
	lock = (lock == me + 1 -> 0 : lock)
}

inline end_call()
{
	seen[me] = NO_VM;
	created[me] = NO_VM;
	policy = OPEN
}

/* The lock on the name; a call of the same transaction has it already. */
inline begin_call()
{
#ifndef NO_LOCK
	lock == 0 || lock == me + 1;
	lock = me + 1;
#endif
	in_call[me] = true;
	if
	:: policy = 1
	:: policy = 2
	fi
}

/* The Sprite was absent.  Either it exists now, or the create has failed. */
inline create()
{
	intend();
	if
	:: vm == NO_VM -> new_vm(); seen[me] = vm; created[me] = vm
	:: vm == NO_VM -> new_vm(); seen[me] = vm	/* the reply is lost, a look finds it */
	:: vm == NO_VM -> new_vm(); failed = true	/* the reply is lost, and so is the look */
	:: vm != NO_VM -> seen[me] = vm				/* a lost race */
	:: failed = true
	fi
}

inline push()
{
	intend();
	if
	:: vm != NO_VM ->
		runs[vm] = policy;
		printf("caller %d pushes policy %d to VM %d\n", me, policy, vm)
	:: vm != NO_VM ->
		runs[vm] = policy;
		printf("caller %d pushes policy %d to VM %d and gets no reply\n", me, policy, vm);
		failed = true
	:: true -> printf("caller %d pushes policy %d, which is accepted and not stored\n", me, policy)
	:: failed = true
	fi
}

#ifdef NO_IDENTITY
#define is_same	true
#else
#define is_same	(vm == seen[me])
#endif

/* In the caller's transaction; then the handle is returned. */
inline record()
{
	printf("caller %d gets VM %d for policy %d; it runs %d\n", me, seen[me], policy, runs[seen[me]]);
	assert(runs[seen[me]] == policy);
	has_pending[me] = true;
	pending_is_newest[me] = true;
	pending[me].row_vm = seen[me];
	pending[me].row_policy = policy;
	pending[me].kind = CONFIRMED;
	pending[me].entry_vm = seen[me];
	pending[me].entry_policy = policy;
	pending[me].entry_epoch = epoch
}

inline return_proven()
{
#ifdef SEEK_PROVEN
	assert(false);
#endif
	printf("caller %d gets VM %d as proven for policy %d; it runs %d\n", me, seen[me], policy, runs[seen[me]]);
	assert(runs[seen[me]] == policy)
}

/* What this call has created is destroyed, if it is still there and that succeeds. */
inline undo()
{
	if
	:: created[me] != NO_VM && vm == created[me] ->
		vm = NO_VM;
		printf("caller %d destroys what it created\n", me)
	:: true -> skip
	fi
}

/* What was confirmed comes true.  An asynchronous commit is not flushed. */
inline commit()
{
	if
	:: has_pending[me] ->
		db.row_vm = pending[me].row_vm;
		db.row_policy = pending[me].row_policy;
		if
		:: pending_is_newest[me] ->
			db.kind = CONFIRMED;
			db.entry_vm = pending[me].entry_vm;
			db.entry_policy = pending[me].entry_policy;
			db.entry_epoch = pending[me].entry_epoch
		:: else -> skip
		fi;
		if
		:: copy(flushed, db)
		:: crashes < CRASHES -> skip
		fi
	:: else -> skip
	fi
}

inline end_transaction()
{
	end_call();
	forget_pending();
	unlock();
	failed = false;
	calls = 0;
	in_call[me] = false
}

proctype Caller(byte me)
{
	byte transactions = 0;
	byte calls = 0;
	byte policy = OPEN;
	bool failed = false;

	do
	:: transactions < TRANSACTIONS ->
		{
			transactions++;
again:		atomic { begin_call() };
			atomic
			{
				calls++;
				seen[me] = vm;
				if
				:: seen[me] == NO_VM -> create()
				:: else -> skip
				fi;
				if
				:: failed -> goto aborted
				:: !failed && created[me] == NO_VM && is_proven -> return_proven(); goto returned
				:: else -> skip
				fi
			};
			atomic { push(); if :: failed -> goto aborted :: else -> skip fi };
#ifndef NO_READ_BACK
			if
			:: vm == NO_VM || runs[vm] != policy -> goto aborted
			:: else -> skip
			fi;
#endif
			atomic
			{
				if
				:: goto aborted			/* another VM, or the workspace cannot be made */
				:: is_same -> record()
				fi
			};
returned:	atomic
			{
				end_call();
				if
				:: calls < 2 -> goto again
				:: commit(); printf("caller %d commits\n", me)
				:: has_pending[me] -> printf("caller %d rolls back\n", me)
				:: calls < 2 && has_pending[me] ->
					/*
					 * ROLLBACK TO a savepoint before the call: what it recorded is void,
					 * and so is its lock.  The transaction goes on.
					 */
					printf("caller %d rolls back to a savepoint\n", me);
					forget_pending();
					unlock();
					goto again
				fi;
				goto ended
			};
aborted:	atomic { printf("caller %d fails\n", me); undo(); goto ended };
ended:		skip
		}
		unless
		{
			atomic { lost[me] -> lost[me] = false }
		};
		d_step { end_transaction() }
	:: transactions == TRANSACTIONS -> break
	od
}

/* ------------------------------------------------------------------------
 * What others do
 * ------------------------------------------------------------------------
 */

inline lose_backends()
{
	lost[0] = in_call[0];
	lost[1] = in_call[1];
	lock = 0
}

active proctype Others()
{
	byte replacements = 0;
	byte failovers = 0;
	bool caught_up = false;

	do
	:: atomic { replacements < REPLACEMENTS -> replacements++; new_vm() }
	:: d_step { replacements < REPLACEMENTS && vm != NO_VM -> replacements++; vm = NO_VM; printf("    the VM is deleted\n") }

	/* what was not flushed is lost; intents are, and with them all that is before them */
	:: d_step { crashes < CRASHES -> crashes++; copy(db, flushed); lose_backends(); printf("    the server crashes\n") }

	/* the standby is where the primary was at some time, and takes over */
	:: d_step { failovers < FAILOVERS && !caught_up -> caught_up = true; copy(standby, flushed) }
	:: d_step
		{
			failovers < FAILOVERS ->
			failovers++;
			epoch++;
			copy(db, standby);
			copy(flushed, standby);
			lose_backends();
			caught_up = false;
			printf("    the standby takes over\n")
		}
	:: break
	od
}

init
{
	atomic
	{
		run Caller(0);
		run Caller(1)
	}
}
