#!/usr/bin/env python3
"""Tries to get a VM handed back that does not run the asked-for policy.

A seeded random driver plays histories: several sessions, names and foreign servers,
hand-backs under different policies, one after another and at once, commit, rollback,
savepoints, prepared transactions, cancels, killed backends and pruning, and on the
platform's side VMs that are replaced or deleted, also amid a call, replies that are lost
before or after their effect, errors, malformed replies, pushes that are accepted and not
stored.  After every hand-back that returned it asks the simulator's books: does the VM
with that id run that policy now, and has any command ever reached a VM while it was open?

A violation is shrunk to the steps that it takes and printed with its seed.

    checker.py [--histories N | --seconds S] [--seed N] [--blind journal|read-back]

PGHOST, PGPORT and PGUSER lead to a cluster of which the caller is superuser and may kill
backends.  With --blind the extension is robbed of a defence, and the run succeeds when a
violation is found: a checker that cannot fail proves nothing.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "sim"))

from sprites_sim import DEFAULT_TOKEN, Server                       # noqa: E402

SESSIONS = 3
NAMES = ("alpha", "alpha", "beta")
KEYS = ("one", "one", "two")
SERVERS = ("sprites", "sprites", "again")
HOSTS = ("a.example", "b.example")
MARK = "--end--"
# What a caller waits for a lock that another session of the same driver holds.
LOCK_TIMEOUT_MS = 40
KINDS = ("get", "create", "policy_set", "policy_get", "exec")
# A killed backend takes the server down for a second, so it is rare.
KILL_SHARE = 0.0015


class Session:
    """A psql that is spoken to line by line."""

    def __init__(self, program, database, blind):
        self.program, self.database, self.blind = program, database, blind
        self.process = None
        self.pid = None

    def connect(self):
        deadline = time.monotonic() + 60
        while True:
            self.process = subprocess.Popen(
                [self.program, "-X", "-q", "-A", "-t", "-F", "|", "-v", "VERBOSITY=sqlstate",
                 "-d", self.database], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, bufsize=1)
            lines = self.run("SET search_path = sprite; SET lock_timeout = %d;"
                             "SET sprite_lockdown.max_attempts = 1; SET client_min_messages = error;"
                             "%s SELECT pg_backend_pid();" % (
                                 LOCK_TIMEOUT_MS, "SET sprite_lockdown.verify_push = 'off';"
                                 if self.blind == "read-back" else ""))
            if lines and lines[-1].isdigit():
                self.pid = int(lines[-1])
                return
            self.close()
            if time.monotonic() > deadline:
                raise RuntimeError("the server does not come back: %s" % lines)
            time.sleep(0.1)

    def send(self, sql):
        if self.process is None:
            self.connect()
        try:
            self.process.stdin.write(sql + "\n\\echo %s\n" % MARK)
            self.process.stdin.flush()
        except OSError:
            pass

    def receive(self):
        """The lines up to the mark; a session that ended is made anew when next used."""
        lines = []
        while True:
            line = self.process.stdout.readline()
            if line == "":
                self.close()
                return lines + ["lost"]
            if line.rstrip("\n") == MARK:
                return lines
            lines.append(line.rstrip("\n"))

    def run(self, sql):
        self.send(sql)
        return self.receive()

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.kill()
            self.process.wait()
        self.process = self.pid = None


def policy_sql(host):
    return "egress_policy('allowlist', '{%s}')" % host


def allowed(policy):
    rules = (policy or {}).get("rules") or []
    return [r.get("domain") for r in rules if r.get("action") == "allow"] if rules else ["everything"]


class Driver:
    def __init__(self, psql, database, blind):
        self.database, self.blind = database, blind
        self.state_dir = tempfile.mkdtemp(prefix="checker.")
        self.server = Server(("127.0.0.1", 0), DEFAULT_TOKEN, self.state_dir)
        self.platform = self.server.platform
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.psql = psql
        self.prepare()
        self.sessions = [Session(psql, database, blind) for _ in range(SESSIONS)]
        self.control = Session(psql, database, None)
        self.faults = Counter()
        self.outcomes = Counter()
        self.tokens = {}

    def prepare(self):
        """Makes the database; again, if a driver beside us has just crashed the server."""
        for _ in range(50):
            if self.make_database():
                return
            time.sleep(0.2)
        raise RuntimeError("could not make database %s" % self.database)

    def make_database(self):
        url = "http://127.0.0.1:%d" % self.server.server_address[1]
        return 0 == subprocess.run([self.psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", "postgres"], text=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, input="""
SET client_min_messages = warning;
DROP DATABASE IF EXISTS %(d)s WITH (FORCE);
CREATE DATABASE %(d)s;
\\c %(d)s
CREATE SCHEMA sprite;
CREATE EXTENSION sprite_lockdown SCHEMA sprite;
ALTER SERVER sprites OPTIONS (SET api_url '%(u)s');
CREATE USER MAPPING FOR CURRENT_USER SERVER sprites OPTIONS (token '%(t)s');
-- the same account once more
CREATE SERVER again FOREIGN DATA WRAPPER sprite_lockdown OPTIONS (api_url '%(u)s');
CREATE USER MAPPING FOR CURRENT_USER SERVER again OPTIONS (token '%(t)s');
""" % {"d": self.database, "u": url, "t": DEFAULT_TOKEN}).returncode

    def close(self):
        for session in self.sessions + [self.control]:
            session.close()
        self.server.shutdown()
        self.server.server_close()
        self.server.sandbox.stop()
        shutil.rmtree(self.state_dir, ignore_errors=True)
        subprocess.run([self.psql, "-X", "-q", "-d", "postgres", "-c",
                        "DROP DATABASE IF EXISTS %s WITH (FORCE)" % self.database],
                       stderr=subprocess.DEVNULL, check=False)

    # -- one history ---------------------------------------------------------

    def reset(self):
        for session in self.sessions:
            if session.process is not None:
                session.run("ROLLBACK;")
        self.platform.reset()
        self.tokens = {}
        for name in self.prepared():
            self.control.run("ROLLBACK PREPARED '%s';" % name)
        while self.control.run("DELETE FROM sprite.machine_sessions;"
                               "DELETE FROM sprite.lockdown_journal;") != []:
            pass

    def play(self, history):
        """Plays the steps; returns what was violated, or None."""
        self.reset()
        for step in history:
            violation = getattr(self, "do_" + step[0])(*step[1:])
            if violation:
                return violation
        return None

    def check(self, lines, host):
        """Holds a hand-back that returned against the simulator's books."""
        row = next((line.split("|") for line in lines if line.count("|") == 3), None)
        if row is None:
            self.outcomes[next((l for l in lines if "ERROR" in l or l == "lost"), "error")
                          .replace("ERROR:", "").strip()] += 1
            return None
        sprite_id, reason, token = row[0], row[1], row[3]
        self.outcomes[reason] += 1
        with self.platform.lock:
            vm = self.platform.vms.get(sprite_id)
            if vm is None:
                return "a handle names VM %s, which never lived" % sprite_id
            if allowed(vm.policy) != [host]:
                return ("a hand-back (%s) for %s gave a VM that allows %s"
                        % (reason, host, allowed(vm.policy)))
            if any(v.exec_while_open for v in self.platform.vms.values()):
                return "a command reached an open VM"
        self.tokens[vm.name] = token
        return None

    def prepared(self):
        lines = self.control.run("SELECT gid FROM pg_prepared_xacts WHERE database = current_database();")
        return [line for line in lines if line.startswith(self.database)]

    def rob(self):
        if self.blind == "journal":
            self.control.run("DELETE FROM sprite.lockdown_journal;")

    def call(self, name, host, key, server):
        if key == "own":
            call = "sprite_ensure_lockdown('%s', %s, %s, server => '%s')" % (
                name, policy_sql(host), "'%s'" % self.tokens[name] if name in self.tokens else "NULL",
                server)
        else:
            call = "sprite_get_or_create('%s', %s, '%s', server => '%s')" % (
                name, policy_sql(host), key, server)
        return "SELECT sprite_id, reason, policy_hash, egress_policy_token FROM %s;" % call

    def do_hand_back(self, number, *call):
        self.rob()
        return self.check(self.sessions[number].run(self.call(*call)), call[1])

    def do_sql(self, number, sql):
        self.sessions[number].run(sql)

    def do_destroy(self, number, name, server):
        self.sessions[number].run("SELECT sprite_destroy('%s', '%s');" % (name, server))

    def do_prune(self):
        self.control.run("SELECT sprite.prune_lockdown_journal('0 s');")

    def do_prepare(self, number):
        self.sessions[number].run("PREPARE TRANSACTION '%s_%d';" % (self.database, number))

    def do_end_prepared(self, number, how):
        """By a session that has no part in it."""
        self.control.run("%s PREPARED '%s_%d';" % (how, self.database, number))

    def interrupt(self, number, name, host, key, server, kind, when, act):
        """Holds a hand-back at a step and does something there, to its backend say."""
        self.rob()
        session = self.sessions[number]
        if session.process is None:
            session.connect()
        with self.platform.lock:
            hold = self.platform.add_hold({"kind": kind, "name": name, "when": when})
        session.send(self.call(name, host, key, server))
        finished = threading.Event()
        lines = []
        reader = threading.Thread(target=lambda: (lines.extend(session.receive()), finished.set()))
        pid = session.pid
        reader.start()
        self.platform.wait_for(lambda: self.platform.held or finished.is_set(), 10)
        if self.platform.held:
            act(pid, finished)
        self.platform.release(hold)
        reader.join()
        return self.check(lines, host)

    def do_cancel(self, *held):
        self.faults["cancel"] += 1
        return self.interrupt(*held, self.end("SELECT pg_cancel_backend(%d);"))

    def do_terminate(self, *held):
        self.faults["terminate"] += 1
        return self.interrupt(*held, self.end("SELECT pg_terminate_backend(%d);"))

    def end(self, sql):
        def act(pid, finished):
            self.control.run(sql % pid)
            finished.wait(10)
        return act

    def do_amid(self, what, *held):
        """Another client of the platform, while the call is under way."""
        return self.interrupt(*held, lambda *_: self.do_outside(held[1], what))

    def do_overlap(self, number, key, server, *held):
        """
        Another session asks for the same Sprite and policy while the call is under way: for
        another policy, the first handle could be stale before it is looked at.
        """
        self.faults["call at the same time"] += 1
        session = self.sessions[number]
        if number == held[0]:
            return None

        sent = []

        def act(*_):
            session.send(self.call(held[1], held[2], key, server))
            sent.append(True)
        violation = self.interrupt(*held, act)
        return violation or (self.check(session.receive(), held[2]) if sent else None)

    def do_kill(self, *held):
        """The whole server restarts after a backend that was killed."""
        self.faults["kill and crash-restart"] += 1

        def act(pid, finished):
            os.kill(pid, signal.SIGKILL)
            finished.wait(10)
        violation = self.interrupt(*held, act)
        for session in self.sessions + [self.control]:
            session.close()
        self.control.connect()
        return violation

    def do_outside(self, name, what):
        """Another client of the platform."""
        self.faults["VM %sd behind our back" % what] += 1
        with self.platform.lock:
            vm = self.platform.find(name)
            if what == "create" and vm is None:
                self.platform.add_vm(name, "control")
            elif what == "replace" and vm is not None:
                self.platform.replace(name)
            elif what == "delete" and vm is not None:
                self.platform.remove_vm(name)

    def do_fault(self, label, fault):
        self.faults[label] += 1
        with self.platform.lock:
            self.platform.add_fault(dict(fault))


# -- histories -------------------------------------------------------------------

FAULTS = (
    ("reply lost after the effect", {"drop": "after"}),
    ("reply lost before the effect", {"drop": "before"}),
    ("reply cut", {"drop": "mid"}),
    ("error before the effect", {"status": 503}),
    ("error after the effect", {"status": 504, "apply": True}),
    ("refusal", {"status": 403}),
    ("slow reply", {"hang": 0.02}),
    ("malformed reply", {"body": '{"id": 7, "name": [], "rules": {}}'}),
    ("accepted and not stored", {"pretend": True}),
)


def random_call(rng):
    return (rng.randrange(SESSIONS), rng.choice(NAMES), rng.choice(HOSTS),
            rng.choice(KEYS + ("own",)), rng.choice(SERVERS))


def random_held(rng, kinds=KINDS):
    """A call, and where it is to be held."""
    return random_call(rng) + (rng.choice(kinds), rng.choice(("before", "after")))


def random_step(rng):
    dice = rng.random()
    if dice < KILL_SHARE:
        return ("kill",) + random_held(rng)
    if dice < 0.38:
        return ("hand_back",) + random_call(rng)
    if dice < 0.56:
        sql = rng.choice(("BEGIN;", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;",
                          "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1;", "COMMIT;", "COMMIT;",
                          "ROLLBACK;", "ROLLBACK;", "SAVEPOINT s;", "ROLLBACK TO s;", "RELEASE s;"))
        return ("sql", rng.randrange(SESSIONS), sql)
    if dice < 0.57:
        return ("prepare", rng.randrange(SESSIONS))
    if dice < 0.59:
        return ("end_prepared", rng.randrange(SESSIONS), rng.choice(("COMMIT", "ROLLBACK")))
    if dice < 0.60:
        return ("prune",)
    if dice < 0.65:
        return (rng.choice(("cancel", "cancel", "terminate")),) + random_held(rng)
    if dice < 0.67:
        # the mkdir of a VM that was replaced right before it is nobody's to prevent
        return ("amid", rng.choice(("replace", "delete"))) + random_held(rng, KINDS[:-1])
    if dice < 0.70:
        return ("overlap", rng.randrange(SESSIONS), rng.choice(KEYS), rng.choice(SERVERS)) + random_held(rng)
    if dice < 0.78:
        return ("outside", rng.choice(NAMES), rng.choice(("replace", "replace", "delete", "create")))
    if dice < 0.81:
        return ("destroy", rng.randrange(SESSIONS), rng.choice(NAMES), rng.choice(SERVERS))
    label, fault = rng.choice(FAULTS)
    kind = rng.choice(("policy_set", "policy_set", "policy_get", "create", "get", "exec", "delete"))
    return ("fault", label, dict(fault, kind=kind, name=rng.choice(NAMES)))


def random_history(seed):
    rng = random.Random(seed)
    return [random_step(rng) for _ in range(rng.randrange(5, 18))]


def shrink(driver, history):
    """Leaves out steps as long as what remains is still violated."""
    progress = True
    while progress:
        progress = False
        for i in reversed(range(len(history))):
            shorter = history[:i] + history[i + 1:]
            if driver.play(shorter):
                history, progress = shorter, True
    return history


def report(driver, seed, history, violation):
    print("VIOLATION (seed %d): %s" % (seed, violation))
    history = shrink(driver, history)
    print("in %d steps: %s" % (len(history), driver.play(history)))
    for step in history:
        print("    " + json.dumps(step))


def progress_line(driver, done, started):
    rate = done / (time.monotonic() - started)
    print("# %d histories, %d hand-backs, %d faults, %.0f histories/s" % (
        done, sum(driver.outcomes.values()), sum(driver.faults.values()), rate), flush=True)


def search(driver, arguments):
    """Plays histories; returns the seed, history and words of a violation, or None."""
    started = last = time.monotonic()
    done = 0
    while (time.monotonic() - started < arguments.seconds if arguments.seconds
           else done < arguments.histories):
        seed = arguments.seed + done
        history = random_history(seed)
        violation = driver.play(history)
        if violation:
            return done, (seed, history, violation)
        done += 1
        if time.monotonic() - last > 20:
            last = time.monotonic()
            progress_line(driver, done, started)
    progress_line(driver, done, started)
    return done, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--seconds", type=float, help="instead of a number of histories")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blind", choices=("journal", "read-back"))
    parser.add_argument("--database", default="checker", help="made anew; several may run at once")
    parser.add_argument("--psql", default="psql")
    arguments = parser.parse_args()
    driver = Driver(arguments.psql, arguments.database, arguments.blind)
    try:
        done, found = search(driver, arguments)
        if found:
            report(driver, *found)
        for title, counts in (("faults", driver.faults), ("outcomes", driver.outcomes)):
            print("# measured: %s: %s" % (title, ", ".join("%s %d" % c for c in counts.most_common())))
        if arguments.blind:
            print("%sok - without the %s a violation is found (after %d histories)"
                  % ("" if found else "not ", arguments.blind, done))
        else:
            print("%sok - no violation in %d histories" % ("not " if found else "", done))
    finally:
        driver.close()
    sys.exit(0 if bool(found) == bool(arguments.blind) else 1)


if __name__ == "__main__":
    main()
