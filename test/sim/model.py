"""The simulated platform: VMs, their policies, and how it should misbehave.

All state sits behind one lock; an effect happens whole or not at all.  What is
kept here is the ground truth: for every VM that ever lived which policy it ran
at each moment, and whether a command ever reached it while it was open.
"""
import base64
import datetime
import json
import threading
import time
import uuid

SWITCHES = {
    "create_status": (201, 200),
    "create_body": ("full", "no_id", "empty_id"),
    "duplicate": ("409", "400"),
    "missing": ("404", "500", "410"),
    "delete_status": (204, 200),
    "policy_set": ("204", "200_body", "200_fewer", "200_empty", "204_not_stored"),
    "policy_get": ("stored", "reordered", "key_order"),
    "restore": ("keeps", "resets"),
    "exec_framing": ("chunks", "merged", "split", "no_exit"),
    "fs_while_cold": ("hang", "wake"),
    "id_form": ("sprite-uuid", "uuid", "none", "empty"),
    "list_items": ("full", "short"),
    "list_has_more": ("right", "lies_true", "lies_false"),
    "replace_between": ("none", "create_policy", "policy_verify"),
    "mkdir_params": ("both", "mkdir_only", "mkdirParents_only"),
    "env_mode": ("adds", "replaces"),
    "rate_limit_headers": (True, False),
    "rate_limit_body": ("full", "bare", "error_code"),
}
FREE_SWITCHES = {
    "list_page_max": 50,
    "rate_limit": None,             # {"create": calls in 60 s}
    "latency_ms": 0,
    "sprite_version": "v0.0.1-rc31",
}
KINDS = ("get create delete list update policy_get policy_set exec exec_ws exec_list "
         "exec_kill fs_read fs_write fs_list fs_delete fs_other checkpoint other").split()
ORGANIZATION = "test-org"
MAX_LOGGED_BODY = 4096


def now_text():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def is_open(policy):
    """A VM without rules is unrestricted, whatever is written instead of them."""
    return not (isinstance(policy, dict) and policy.get("rules"))


class VM:
    """One VM instance.  Another one under the same name is another VM."""

    def __init__(self, vm_id, name, created_by):
        self.id = vm_id
        self.name = name
        self.status = "cold"
        self.version = None
        self.policy = {"rules": []}
        self.other_policies = {}
        self.url_settings = {"auth": "sprite"}
        self.labels = []
        self.config = None
        self.created = self.updated = now_text()
        self.last_running = None
        self.alive = True
        self.created_by = created_by
        self.pushes = 0
        self.exec_while_open = False
        self.execs = []
        self.history = []
        self.not_ready = 0          # execs that still hang
        self.checkpoints = [{"id": "v0", "create_time": self.created, "comment": "initial"}]
        self.root = None            # the sandbox's directory, made on first use
        self.note("created")

    def note(self, event):
        self.history.append({"time": time.time(), "event": event, "policy": self.policy})

    def boot(self):
        if self.status != "running":
            self.status = "running"
            self.version = "v0.0.1-rc31"
            self.last_running = now_text()

    def truth(self):
        return {"id": self.id, "name": self.name, "status": self.status, "policy": self.policy,
                "enforced": not is_open(self.policy), "alive": self.alive,
                "created_by": self.created_by, "history": self.history,
                "exec_while_open": self.exec_while_open, "execs": self.execs,
                "pushes": self.pushes, "config": self.config}


class Platform:
    """State of the simulated platform and of the test that drives it."""

    def __init__(self):
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.generation = 0
        self.reset()

    def reset(self):
        with self.lock:
            for vm in getattr(self, "vms", {}).values():
                vm.alive = False
            self.generation += 1    # lets every held or hanging request go
            self.vms = {}
            self.names = {}
            self.log = []
            self.seq = 0
            self.cleared = 0
            self.faults = []
            self.holds = []
            self.held = {}
            self.next_number = 1
            self.creates = []
            self.streamed_bytes = 0
            self.switches = {name: values[0] for name, values in SWITCHES.items()}
            self.switches.update(FREE_SWITCHES)
            self.changed.notify_all()

    # -- switches, faults, holds ------------------------------------------

    def set_switches(self, wanted):
        with self.lock:
            for name, value in wanted.items():
                if name in SWITCHES and value not in SWITCHES[name]:
                    raise ValueError("switch %s has no value %r" % (name, value))
                if name not in SWITCHES and name not in FREE_SWITCHES:
                    raise ValueError("there is no switch %s" % name)
            self.switches.update(wanted)
            return dict(self.switches)

    def add_fault(self, fault):
        with self.lock:
            if fault.get("kind") not in KINDS:
                raise ValueError("a fault needs a kind: %s" % " ".join(KINDS))
            fault.setdefault("times", 1)
            fault.setdefault("skip", 0)
            fault.update(id=self.next_number, used=0, seen=0)
            self.next_number += 1
            self.faults.append(fault)
            return fault["id"]

    def take_fault(self, kind, name):
        with self.lock:
            for fault in self.faults:
                if fault["kind"] != kind or fault.get("name") not in (None, name):
                    continue
                if fault["used"] >= fault["times"]:
                    continue
                fault["seen"] += 1
                if fault["seen"] <= fault["skip"]:
                    continue
                fault["used"] += 1
                return fault
        return {}

    def add_hold(self, hold):
        with self.lock:
            if hold.get("kind") not in KINDS:
                raise ValueError("a hold needs a kind: %s" % " ".join(KINDS))
            hold.setdefault("times", 1)
            hold.setdefault("when", "before")
            hold.update(id=self.next_number, used=0)
            self.next_number += 1
            self.holds.append(hold)
            return hold["id"]

    def pass_hold(self, kind, name, when, gone):
        """Stops a request that a hold matches.  False when it must be dropped."""
        with self.changed:
            generation = self.generation
            hold = next((h for h in self.holds
                         if h["kind"] == kind and h.get("name") in (None, name)
                         and h["when"] == when and h["used"] < h["times"]), None)
            if hold is None:
                return True
            hold["used"] += 1
            token = object()
            self.held[token] = hold["id"]
            self.changed.notify_all()
            while token in self.held and self.generation == generation and not gone():
                self.changed.wait(0.1)
            self.held.pop(token, None)
            self.changed.notify_all()
            return self.generation == generation and not gone()

    def release(self, hold_id=None):
        with self.changed:
            for token in [t for t, i in self.held.items() if hold_id in (None, i)]:
                del self.held[token]
            self.holds = [h for h in self.holds if hold_id not in (None, h["id"])]
            self.changed.notify_all()

    def wait_for(self, condition, timeout):
        deadline = time.monotonic() + timeout
        with self.changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self.changed.wait(min(left, 0.2))
            return True

    def hang(self, seconds, gone):
        """Waits like a platform that does not answer; ends when the client goes."""
        deadline = time.monotonic() + seconds
        with self.changed:
            generation = self.generation
            while time.monotonic() < deadline and self.generation == generation and not gone():
                self.changed.wait(0.05)
            return self.generation == generation and not gone()

    # -- log ----------------------------------------------------------------

    def note_request(self, entry):
        with self.changed:
            self.seq += 1
            entry["seq"] = self.seq
            self.log.append(entry)
            self.changed.notify_all()

    def count(self, kind=None, name=None):
        return sum(1 for e in self.log if e["seq"] > self.cleared
                   and kind in (None, e["kind"]) and name in (None, e["name"]))

    def requests(self, name=None, since=0):
        with self.lock:
            log = [e for e in self.log if e["seq"] > max(self.cleared, since)
                   and name in (None, e["name"])]
            counts = {}
            for entry in log:
                counts[entry["kind"]] = counts.get(entry["kind"], 0) + 1
            return {"counts": counts, "total": len(log), "seq": self.seq, "log": log,
                    "connections": len({e["conn"] for e in log})}

    # -- VMs ------------------------------------------------------------------

    def new_id(self):
        form = self.switches["id_form"]
        return str(uuid.uuid4()) if form == "uuid" else "sprite-%s" % uuid.uuid4()

    def add_vm(self, name, created_by, vm_id=None):
        vm = VM(vm_id or self.new_id(), name, created_by)
        self.vms[vm.id] = vm
        self.names[name] = vm.id
        return vm

    def remove_vm(self, name, event="deleted"):
        vm = self.vms[self.names.pop(name)]
        vm.alive = False
        vm.note(event)
        return vm

    def find(self, name):
        vm_id = self.names.get(name)
        return self.vms[vm_id] if vm_id else None

    def replace(self, name, vm_id=None):
        self.remove_vm(name, "replaced")
        return self.add_vm(name, "control", vm_id)

    def set_policy(self, vm, policy, event):
        vm.policy = policy
        vm.updated = now_text()
        vm.note(event)

    def sprite_object(self, vm, short=False):
        if short:
            return {"name": vm.name, "org_slug": ORGANIZATION, "updated_at": vm.updated}
        sprite = {"id": vm.id, "name": vm.name, "status": vm.status, "version": vm.version,
                  "url": "https://%s-j34t.sprites.app" % vm.name, "created_at": vm.created,
                  "updated_at": vm.updated, "organization": ORGANIZATION,
                  "url_settings": vm.url_settings, "environment_version": None,
                  "last_running_at": vm.last_running}
        if vm.labels:
            sprite["labels"] = vm.labels
        if self.switches["id_form"] == "none":
            del sprite["id"]
        elif self.switches["id_form"] == "empty":
            sprite["id"] = ""
        return sprite

    def rate_limited(self):
        """Counts a create; true when there were too many within a minute."""
        limit = (self.switches["rate_limit"] or {}).get("create")
        now = time.monotonic()
        self.creates = [t for t in self.creates if t > now - 60]
        if limit is not None and len(self.creates) >= limit:
            return True
        self.creates.append(now)
        return False

    def page(self, prefix, size, token):
        names = sorted(n for n in self.names if n.startswith(prefix))
        start = 0
        if token:
            after = base64.urlsafe_b64decode(token.encode()).decode()
            start = sum(1 for n in names if n <= after)
        chosen = names[start:start + size]
        more = start + size < len(names)
        next_token = base64.urlsafe_b64encode(chosen[-1].encode()).decode() if more else None
        lie = self.switches["list_has_more"]
        return ([self.find(n) for n in chosen],
                {"lies_true": True, "lies_false": False}.get(lie, more), next_token)

    def reported_policy(self, vm):
        mode = self.switches["policy_get"]
        policy = json.loads(json.dumps(vm.policy))
        rules = policy.get("rules")
        if isinstance(rules, list) and mode == "reordered":
            policy["rules"] = rules[::-1]
        if isinstance(rules, list) and mode == "key_order":
            policy["rules"] = [dict(sorted(r.items(), reverse=True)) for r in rules]
        return policy

    def state(self):
        """The ground truth; the caller holds the lock while it uses the result."""
        return {"vms": {i: vm.truth() for i, vm in self.vms.items()},
                "names": dict(self.names), "streamed_bytes": self.streamed_bytes}
