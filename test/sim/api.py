"""The platform's calls: each takes a call and returns what to answer."""
import hashlib
import json
import os
import re
import shutil
import threading

from model import ORGANIZATION, is_open, now_text
from sandbox import DEFAULT_PATH, host_path

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
FS_HANG_SECONDS = 75
EXEC_HANG_SECONDS = 120
ERRNO_CODES = {2: "ENOENT", 13: "EACCES", 17: "EEXIST", 20: "ENOTDIR", 21: "EISDIR",
               22: "EINVAL", 39: "ENOTEMPTY"}


class Answer:
    """A reply: JSON, text or bytes, in one piece or in chunks as they come."""

    def __init__(self, status, payload=None, kind="json", daemon=False, chunks=None):
        self.status = status
        self.daemon = daemon
        self.headers = {}
        self.chunks = chunks        # a function that is given a writer
        if kind == "json" and payload is not None:
            self.body = json.dumps(payload, ensure_ascii=False).encode()
            self.content_type = "application/json; charset=utf-8"
        elif kind == "text":
            self.body = (payload or "").encode()
            self.content_type = "text/plain; charset=utf-8"
        else:
            self.body = payload or b""
            self.content_type = "application/octet-stream" if kind == "bytes" else "text/plain"


class Call:
    """One request as the handlers see it."""

    def __init__(self, method, parts, query, body, gone):
        self.method = method
        self.parts = parts          # of the path below /v1
        self.query = query          # list of pairs
        self.body = body
        self.gone = gone            # has the client left?
        self.name = parts[1] if len(parts) > 1 and parts[0] == "sprites" else None
        self.pretend = False
        self.kind = self.classify()

    def classify(self):
        rest = self.parts[2:]
        if self.parts[:1] != ["sprites"]:
            return "other"
        if len(self.parts) == 1:
            return {"POST": "create", "GET": "list"}.get(self.method, "other")
        if not rest:
            return {"GET": "get", "DELETE": "delete", "PUT": "update"}.get(self.method, "other")
        if rest == ["policy", "network"]:
            return {"GET": "policy_get", "POST": "policy_set"}.get(self.method, "other")
        if rest[0] == "exec":
            if len(rest) > 1:
                return "exec_kill"
            return {"POST": "exec", "GET": "exec_list"}.get(self.method, "other")
        if rest[0] == "fs":
            kind = "fs_" + "".join(rest[1:2])
            return kind if kind in ("fs_read", "fs_write", "fs_list", "fs_delete") else "fs_other"
        return "checkpoint" if rest[0].startswith("checkpoint") else "other"

    def arg(self, name, default=None):
        return next((v for k, v in self.query if k == name), default)

    def args(self, name):
        return [v for k, v in self.query if k == name]

    def json(self):
        try:
            return json.loads(self.body or b"{}")
        except ValueError:
            return None


def text(status, words):
    return Answer(status, words + "\n", kind="text", daemon=True)


class Api:
    def __init__(self, platform, sandbox):
        self.platform = platform
        self.sandbox = sandbox

    def answer(self, call):
        """Applies the call's effect and says what the platform would answer."""
        parts = call.parts
        if parts[:1] == ["organization"]:
            return Answer(200, {"name": ORGANIZATION, "slug": ORGANIZATION})
        if parts[:1] != ["sprites"]:
            return Answer(404, {"error": "not found"})
        if len(parts) == 1:
            if call.kind not in ("create", "list"):
                return Answer(405, {"error": "method not allowed"})
            return getattr(self, call.kind)(call)
        if len(parts) == 2:
            if call.kind not in ("get", "delete", "update"):
                return Answer(405, {"error": "method not allowed"})
            return getattr(self, call.kind)(call)
        return self.proxied(call)

    # -- control plane --------------------------------------------------------

    def missing(self, words):
        status = int(self.platform.switches["missing"])
        return Answer(status, {"error": "failed to %s sprite" % words if status == 500
                               else "sprite not found"})

    def limited(self):
        limit = self.platform.switches["rate_limit"]["create"]
        message = "Sprite creation rate limit exceeded. Try again later."
        body = {"error": "sprite_creation_rate_limited", "message": message, "limit": limit,
                "window_seconds": 60, "retry_after_seconds": 30, "upgrade_available": True,
                "upgrade_url": "https://fly.io/dashboard"}
        form = self.platform.switches["rate_limit_body"]
        if form == "bare":
            body = {"error": message}
        elif form == "error_code":
            body = {"error_code": "sprite_creation_rate_limited", "error": message}
        answer = Answer(429, body)
        if self.platform.switches["rate_limit_headers"]:
            answer.headers = {"Retry-After": "30", "X-RateLimit-Limit": str(limit),
                              "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "4102444800"}
        return answer

    def create(self, call):
        wanted = call.json()
        name = wanted.get("name") if isinstance(wanted, dict) else None
        if not isinstance(name, str) or not NAME.fullmatch(name):
            return Answer(400, {"errors": ["invalid sprite name format"]})
        auth = (wanted.get("url_settings") or {}).get("auth", "sprite")
        if auth not in ("sprite", "public"):
            return Answer(400, {"errors": ["invalid auth type, must be one of: sprite, public"]})
        with self.platform.lock:
            if self.platform.rate_limited():
                return self.limited()
            if self.platform.find(name):
                return Answer(int(self.platform.switches["duplicate"]), {
                    "error": "A sprite named '%s' already exists. "
                             "Please choose a different name." % name})
            vm = self.platform.add_vm(name, "api")
            vm.url_settings = {"auth": auth}
            vm.labels = wanted.get("labels") or []
            vm.config = wanted.get("config")
            body = self.platform.sprite_object(vm)
        if self.platform.switches["create_body"] == "no_id":
            body.pop("id", None)
        elif self.platform.switches["create_body"] == "empty_id":
            body["id"] = ""
        return Answer(self.platform.switches["create_status"], body)

    def list(self, call):
        with self.platform.lock:
            try:
                size = int(call.arg("max_results", "50"))
                vms, more, token = self.platform.page(
                    call.arg("prefix", ""), min(size, self.platform.switches["list_page_max"]),
                    call.arg("continuation_token"))
            except ValueError:
                return Answer(400, {"errors": ["invalid list parameter"]})
            short = self.platform.switches["list_items"] == "short"
            counts = [vm.status for vm in map(self.platform.find, self.platform.names)]
            return Answer(200, {
                "sprites": [self.platform.sprite_object(vm, short) for vm in vms],
                "has_more": more, "next_continuation_token": token, "name": ORGANIZATION,
                "running": counts.count("running"), "warm": counts.count("warm"),
                "cold": counts.count("cold")})

    def get(self, call):
        with self.platform.lock:
            vm = self.platform.find(call.name)
            if vm is None:
                return self.missing("retrieve")
            return Answer(200, self.platform.sprite_object(vm))

    def delete(self, call):
        with self.platform.lock:
            vm = self.platform.find(call.name)
            if vm is None:
                return self.missing("delete")
            if not call.pretend:
                self.platform.remove_vm(call.name)
        if not call.pretend:
            self.sandbox.discard(vm)
        return Answer(self.platform.switches["delete_status"], kind="none")

    def update(self, call):
        wanted = call.json()
        with self.platform.lock:
            vm = self.platform.find(call.name)
            if vm is None:
                return Answer(404, {"error": "sprite not found"})
            if not isinstance(wanted, dict):
                return Answer(400, {"errors": ["invalid body"]})
            vm.url_settings = wanted.get("url_settings", vm.url_settings)
            vm.labels = wanted.get("labels", vm.labels)
            if wanted.get("clear_labels"):
                vm.labels = []
            vm.updated = now_text()
            return Answer(200, self.platform.sprite_object(vm))

    # -- the daemon in the VM ---------------------------------------------------

    def proxied(self, call):
        rest = call.parts[2:]
        with self.platform.lock:
            vm = self.platform.find(call.name)
            if vm is None:
                return Answer(404, {"error": "sprite not found"})
            if rest[0] == "check":
                return Answer(200, {"sprite_name": vm.name, "sprite_id": vm.id,
                                    "status": vm.status, "reason": "", "elapsed": "1ms",
                                    "checked_at": now_text()}, daemon=True)
            asleep = vm.status == "cold" and vm.version is not None
            if rest[0] != "fs" or self.platform.switches["fs_while_cold"] == "wake" or not asleep:
                vm.boot()
                asleep = False
        if rest[0] == "fs" and asleep:
            self.platform.hang(FS_HANG_SECONDS, call.gone)
            return None
        handler = getattr(self, "on_" + rest[0], None)
        return handler(call, vm, rest[1:]) if handler else text(404, "not found")

    def on_policy(self, call, vm, rest):
        if rest == ["network"]:
            if call.kind == "policy_set":
                return self.set_network_policy(call, vm)
            if call.kind == "policy_get":
                with self.platform.lock:
                    return Answer(200, self.platform.reported_policy(vm), daemon=True)
        if rest in (["privileges"], ["resources"]):
            if call.method == "GET":
                return Answer(200, vm.other_policies.get(rest[0], {}), daemon=True)
            vm.other_policies[rest[0]] = call.json() if call.method == "POST" else {}
            return Answer(204, kind="none", daemon=True)
        return text(405, "method not allowed")

    def set_network_policy(self, call, vm):
        policy = call.json()
        if not isinstance(policy, dict) or not isinstance(policy.get("rules", []), (list, type(None))):
            return text(400, "invalid policy: rules must be a list")
        for rule in policy.get("rules") or []:
            if not isinstance(rule, dict) or ("include" in rule) == ("domain" in rule):
                return text(400, "invalid policy: a rule needs either domain or include")
        mode = self.platform.switches["policy_set"]
        with self.platform.lock:
            if (self.platform.switches["replace_between"] == "create_policy"
                    and vm.created_by == "api" and vm.pushes == 0):
                vm = self.platform.replace(call.name)
                vm.boot()
            vm.pushes += 1
            if mode != "204_not_stored" and not call.pretend:
                stored = policy
                if mode == "200_fewer":
                    stored = {"rules": (policy.get("rules") or [])[:-1]}
                self.platform.set_policy(vm, stored, "policy")
            reported = self.platform.reported_policy(vm)
            if (self.platform.switches["replace_between"] == "policy_verify"
                    and vm.created_by == "api"):
                self.platform.replace(call.name)
        if mode in ("200_body", "200_fewer"):
            return Answer(200, reported, daemon=True)
        return Answer(200 if mode == "200_empty" else 204, kind="none", daemon=True)

    # -- exec -------------------------------------------------------------------

    def exec_environment(self, call):
        env = {"PATH": DEFAULT_PATH, "HOME": "/home/sprite", "USER": "sprite"}
        if call.args("env") and self.platform.switches["env_mode"] == "replaces":
            env = {}
        env.update(e.partition("=")[::2] for e in call.args("env"))
        return env

    def note_exec(self, vm, argv):
        with self.platform.lock:
            entry = {"cmd": argv, "open": is_open(vm.policy), "time": now_text(), "exit": None}
            vm.exec_while_open = vm.exec_while_open or entry["open"]
            vm.execs.append(entry)
            return entry

    def exec_argv(self, call):
        argv = call.args("cmd") or ["bash"]
        return [call.arg("path")] + argv[1:] if call.arg("path") else argv

    def on_exec(self, call, vm, rest):
        if rest and rest[-1] == "kill":
            return Answer(404, {"error": "session not found"}, daemon=True)
        if call.kind == "exec_list":
            return Answer(200, {"count": 0, "sessions": []}, daemon=True)
        if call.kind != "exec":
            return text(405, "method not allowed")
        with self.platform.lock:
            hangs = vm.not_ready > 0
            vm.not_ready -= hangs
        if hangs:
            self.platform.hang(EXEC_HANG_SECONDS, call.gone)
            return None
        argv = self.exec_argv(call)
        directory = call.arg("dir", "/")
        if not os.path.isdir(host_path(self.sandbox.root_of(vm), directory)):
            return text(400, "failed to start: chdir %s: no such file or directory" % directory)
        return Answer(200, kind="bytes", daemon=True,
                      chunks=lambda write: self.stream_exec(call, vm, argv, directory, write))

    def stream_exec(self, call, vm, argv, directory, write):
        """Writes one chunk a message, or whatever the framing switch makes of it."""
        framing = self.platform.switches["exec_framing"]
        entry = self.note_exec(vm, argv)
        lock = threading.Lock()
        gathered = []

        def emit(number, data):
            with lock:
                message = bytes([number]) + data
                if framing in ("merged", "split"):
                    gathered.append(message)
                else:
                    write(message)

        stdin = call.body if call.arg("stdin") == "true" else b""
        entry["exit"] = self.sandbox.run(vm, directory, self.exec_environment(call), argv,
                                         stdin, emit)
        last = bytes([3, entry["exit"] & 0xFF])
        if framing == "chunks":
            write(last)
        elif framing == "merged":
            write(b"".join(gathered) + last)
        elif framing == "split":
            whole = b"".join(gathered) + last
            for start in range(0, len(whole), max(1, len(whole) // 3)):
                write(whole[start:start + max(1, len(whole) // 3)])

    # -- files --------------------------------------------------------------------

    def fs_path(self, call, vm, name="path", source=None):
        value = (source or {}).get(name) or call.arg(name) or ""
        working = (source or {}).get("workingDir") or call.arg("workingDir") or "/"
        inside = "/" + os.path.normpath(os.path.join("/" + working, value)).lstrip("/")
        return inside, host_path(self.sandbox.root_of(vm), inside)

    def on_fs(self, call, vm, rest):
        action = rest[0] if rest else ""
        handler = getattr(self, "fs_" + action, None)
        if handler is None:
            return text(404, "not found")
        try:
            return handler(call, vm)
        except OSError as error:
            code = ERRNO_CODES.get(error.errno, "EIO")
            return Answer(404 if code == "ENOENT" else 400,
                          {"error": error.strerror, "code": code, "path": call.arg("path")},
                          daemon=True)

    def fs_read(self, call, vm):
        with open(self.fs_path(call, vm)[1], "rb") as file:
            return Answer(200, file.read(), kind="bytes", daemon=True)

    def fs_write(self, call, vm):
        inside, path = self.fs_path(call, vm)
        names = {"both": ("mkdir", "mkdirParents"), "mkdir_only": ("mkdir",),
                 "mkdirParents_only": ("mkdirParents",)}[self.platform.switches["mkdir_params"]]
        if any(call.arg(n) == "true" for n in names):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        mode = int(call.arg("mode", "0644"), 8)
        with open(path, "wb") as file:
            file.write(call.body)
        os.chmod(path, mode)
        return Answer(200, {"path": inside, "size": len(call.body), "mode": "%04o" % mode},
                      daemon=True)

    @staticmethod
    def entry(inside, path):
        info = os.lstat(path)
        kind = ("symlink" if os.path.islink(path) else
                "directory" if os.path.isdir(path) else "file")
        return {"name": os.path.basename(inside), "path": inside, "type": kind,
                "size": info.st_size, "mode": "%04o" % (info.st_mode & 0o7777),
                "modTime": now_text(), "isDir": kind == "directory"}

    def fs_list(self, call, vm):
        inside, path = self.fs_path(call, vm)
        if os.path.isdir(path):
            entries = [self.entry(os.path.join(inside, n), os.path.join(path, n))
                       for n in sorted(os.listdir(path))]
        else:
            entries = [self.entry(inside, path)]
        return Answer(200, {"path": inside, "entries": entries, "count": len(entries)},
                      daemon=True)

    def fs_delete(self, call, vm):
        inside, path = self.fs_path(call, vm, source=call.json() if call.body else None)
        recursive = call.arg("recursive") == "true" or bool((call.json() or {}).get("recursive"))
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path) if recursive else os.rmdir(path)
        else:
            os.remove(path)
        return Answer(200, {"deleted": [inside], "count": 1}, daemon=True)

    def two_paths(self, call, vm):
        wanted = call.json() or {}
        return (self.fs_path(call, vm, "source", wanted), self.fs_path(call, vm, "dest", wanted))

    def fs_rename(self, call, vm):
        source, dest = self.two_paths(call, vm)
        os.rename(source[1], dest[1])
        return Answer(200, {"source": source[0], "dest": dest[0]}, daemon=True)

    def fs_copy(self, call, vm):
        source, dest = self.two_paths(call, vm)
        if os.path.isdir(source[1]):
            shutil.copytree(source[1], dest[1])
        else:
            shutil.copyfile(source[1], dest[1])
        return Answer(200, {"copied": [{"source": source[0], "dest": dest[0]}], "count": 1,
                            "totalBytes": 0}, daemon=True)

    def fs_chmod(self, call, vm):
        wanted = call.json() or {}
        inside, path = self.fs_path(call, vm, source=wanted)
        os.chmod(path, int(wanted.get("mode", "0644"), 8))
        return Answer(200, {"affected": [{"path": inside, "mode": wanted.get("mode")}],
                            "count": 1}, daemon=True)

    def fs_chown(self, call, vm):
        wanted = call.json() or {}
        inside, path = self.fs_path(call, vm, source=wanted)
        os.lstat(path)
        return Answer(200, {"affected": [{"path": inside, "uid": wanted.get("uid"),
                                          "gid": wanted.get("gid")}], "count": 1}, daemon=True)

    # -- checkpoints and the rest ---------------------------------------------------

    @staticmethod
    def stream(*lines):
        body = "".join(json.dumps(dict(line, time=now_text())) + "\n" for line in lines)
        answer = Answer(200, body.encode(), kind="bytes", daemon=True)
        answer.content_type = "application/x-ndjson"
        return answer

    def on_checkpoint(self, call, vm, rest):
        if call.method != "POST" or rest:
            return text(405, "method not allowed")
        number = "v%d" % len(vm.checkpoints)
        vm.checkpoints.append({"id": number, "create_time": now_text(),
                               "comment": (call.json() or {}).get("comment", "")})
        return self.stream({"type": "info", "data": "checkpointing"},
                           {"type": "complete", "data": "ID: %s" % number})

    def on_checkpoints(self, call, vm, rest):
        if not rest:
            return Answer(200, vm.checkpoints, daemon=True)
        found = next((c for c in vm.checkpoints if c["id"] == rest[0]), None)
        if rest[1:] == ["restore"]:
            if found is None:
                return self.stream({"type": "error", "error": "checkpoint not found"})
            if self.platform.switches["restore"] == "resets":
                with self.platform.lock:
                    self.platform.set_policy(vm, {"rules": []}, "restored")
            return self.stream({"type": "info", "data": "restoring"},
                               {"type": "complete", "data": "restored"})
        return Answer(200, found, daemon=True) if found else text(500, "checkpoint not found")

    def on_upgrade(self, call, vm, rest):
        return Answer(204, kind="none", daemon=True)

    def on_restart(self, call, vm, rest):
        return Answer(200, {"sprite_name": vm.name, "machine_id": hashlib.md5(
            vm.id.encode()).hexdigest()[:14], "message": "restarted"}, daemon=True)

    def on_services(self, call, vm, rest):
        return Answer(200, [], daemon=True) if not rest else text(404, "service not found")
