#!/usr/bin/env python3
"""A simulator of the Sprites platform, for development and tests.

    python3 sprites_sim.py

prints its address and answers the platform's HTTP API there until it is
interrupted.  Below /__sim/ it is told how to misbehave and asked what happened;
README.md beside this file lists how.
"""
import argparse
import http.server
import json
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
import urllib.parse
import uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import websocket                                                    # noqa: E402
from api import EXEC_HANG_SECONDS, Answer, Api, Call                # noqa: E402
from model import MAX_LOGGED_BODY, Platform                         # noqa: E402
from sandbox import Sandbox, pump                                   # noqa: E402

DEFAULT_TOKEN = "org/org-1/tok-1/secret"
MAX_REQUEST_BODY = 128 * 1024 * 1024
MAX_URL = 16 * 1024


class Dropped(Exception):
    """The connection is to be closed without another byte."""


class Control:
    """The calls below /__sim/."""

    def __init__(self, platform, sandbox):
        self.platform = platform
        self.sandbox = sandbox

    def answer(self, method, parts, query, body):
        wanted = json.loads(body or b"{}")
        if parts[0] == "vm" and len(parts) == 3:
            return self.act(parts[1], parts[2], wanted)
        handler = getattr(self, "on_" + "_".join(parts), None)
        if handler is None:
            raise ValueError("there is no control call %s" % "/".join(parts))
        return handler(method, query, wanted)

    def on_reset(self, method, query, wanted):
        for vm in list(self.platform.vms.values()):
            self.sandbox.discard(vm)
        self.platform.reset()
        return {}

    def on_switches(self, method, query, wanted):
        return self.platform.set_switches(wanted if method == "POST" else {})

    def on_fault(self, method, query, wanted):
        return {"id": self.platform.add_fault(wanted)}

    def on_faults(self, method, query, wanted):
        return {"faults": self.platform.faults}

    def on_hold(self, method, query, wanted):
        return {"id": self.platform.add_hold(wanted)}

    def on_held(self, method, query, wanted):
        count = int(query.get("count", 0))
        self.platform.wait_for(lambda: len(self.platform.held) >= count,
                               float(query.get("timeout", 10)))
        return {"held": len(self.platform.held)}

    def on_release(self, method, query, wanted):
        self.platform.release(wanted.get("id"))
        return {}

    def on_requests(self, method, query, wanted):
        return self.platform.requests(query.get("name"), int(query.get("since", 0)))

    def on_requests_clear(self, method, query, wanted):
        self.platform.cleared = self.platform.seq
        return {}

    def on_wait_requests(self, method, query, wanted):
        kind, name = query.get("kind"), query.get("name")
        self.platform.wait_for(
            lambda: self.platform.count(kind, name) >= int(query.get("count", 1)),
            float(query.get("timeout", 10)))
        return {"count": self.platform.count(kind, name)}

    def on_state(self, method, query, wanted):
        return dict(self.platform.state(), sandbox=self.sandbox.mode)

    def act(self, name, action, wanted):
        """What other clients of the platform, or time, do to a VM."""
        platform = self.platform
        if action == "create":
            vm = platform.add_vm(name, "control", wanted.get("id"))
            if "policy" in wanted:
                platform.set_policy(vm, wanted["policy"], "policy")
            return vm.truth()
        vm = platform.find(name)
        if vm is None:
            raise ValueError("there is no VM %s" % name)
        if action == "replace":
            self.sandbox.discard(vm)
            return platform.replace(name, wanted.get("id")).truth()
        if action == "delete":
            platform.remove_vm(name)
            self.sandbox.discard(vm)
        elif action == "policy":
            platform.set_policy(vm, wanted, "policy by another client")
        elif action == "sleep":
            vm.version = vm.version or "v0.0.1-rc31"
            vm.status = "cold"
            vm.note("sleep")
        elif action == "wake":
            vm.boot()
            vm.note("wake")
        elif action == "exec_not_ready":
            vm.not_ready = int(wanted.get("times", 1))
        else:
            raise ValueError("there is no action %s" % action)
        return vm.truth()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1                   # a reply leaves in one piece
    server_version = "Fly/simulated"

    def setup(self):
        super().setup()
        self.connection_number = self.server.count_connection()

    def log_message(self, *arguments):
        pass

    def handle(self):
        try:
            super().handle()
        except (Dropped, OSError, ValueError):
            self.close_connection = True

    def finish(self):
        try:
            super().finish()
        except OSError:
            pass

    def gone(self):
        """True when the client has closed the connection."""
        try:
            self.connection.setblocking(False)
            try:
                if isinstance(self.connection, ssl.SSLSocket):
                    return False
                return self.connection.recv(1, socket.MSG_PEEK) == b""
            finally:
                self.connection.setblocking(True)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True

    # -- request ------------------------------------------------------------------

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if size == 0 or len(body) > MAX_REQUEST_BODY:
                    return body
        return self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MAX_REQUEST_BODY))

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(p) for p in url.path.split("/")[1:] if p]
        query = urllib.parse.parse_qsl(url.query, keep_blank_values=True)
        body = self.read_body()
        if parts[:1] == ["__sim"]:
            self.serve_control(parts[1:], dict(query), body)
        elif len(self.path) > MAX_URL:
            self.send_answer(Answer(431, "header fields too large", kind="text"))
        else:
            self.serve_api(parts, query, body)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = serve

    def serve_control(self, parts, query, body):
        control = self.server.control
        try:
            if parts[:1] in (["held"], ["wait_requests"]):
                payload = json.dumps(control.answer(self.command, parts, query, body))
            else:
                with self.server.platform.lock:
                    payload = json.dumps(control.answer(self.command, parts, query, body))
            status = 200
        except (ValueError, KeyError, IndexError, TypeError) as error:
            status, payload = 400, json.dumps({"error": str(error)})
        answer = Answer(status)
        answer.body, answer.content_type = payload.encode(), "application/json"
        self.send_answer(answer)

    def note(self, call, query):
        headers = {k.lower(): v for k, v in self.headers.items()}
        if "authorization" in headers:
            headers["authorization"] = "Bearer ***"
        entry = {"kind": call.kind, "name": call.name, "method": self.command,
                 "path": urllib.parse.urlsplit(self.path).path, "query": query, "status": None,
                 "body": call.body[:MAX_LOGGED_BODY].decode("utf-8", "replace"),
                 "conn": self.connection_number, "headers": headers, "time": time.time(),
                 "done": False}
        if call.kind == "create":
            wanted = call.json()
            name = wanted.get("name") if isinstance(wanted, dict) else None
            call.name = entry["name"] = name if isinstance(name, str) else None
        self.server.platform.note_request(entry)
        return entry

    def serve_api(self, parts, query, body):
        platform = self.server.platform
        call = Call(self.command, parts[1:] if parts[:1] == ["v1"] else ["?"], query, body,
                    self.gone)
        if self.headers.get("Upgrade", "").lower() == "websocket" and call.kind == "exec_list":
            call.kind = "exec_ws"
        entry = self.note(call, query)
        if platform.switches["latency_ms"]:
            time.sleep(platform.switches["latency_ms"] / 1000)
        if self.headers.get("Authorization") != "Bearer " + self.server.token:
            self.send_answer(Answer(401, {"error": "authentication failed"}), entry)
            return
        self.misbehave(call, entry)

    # -- faults and holds ---------------------------------------------------------

    def drop_unless(self, alive):
        if not alive:
            raise Dropped()

    def misbehave(self, call, entry):
        """Serves a call in the way that holds and faults ask for."""
        platform = self.server.platform
        self.drop_unless(platform.pass_hold(call.kind, call.name, "before", self.gone))
        fault = platform.take_fault(call.kind, call.name)
        if fault.get("drop") == "before":
            raise Dropped()
        if "hang" in fault:
            self.drop_unless(platform.hang(float(fault["hang"]), self.gone))
        call.pretend = bool(fault.get("pretend"))

        replaced = any(k in fault for k in ("status", "raw", "raw_hex", "stream"))
        answer = None
        if not replaced or fault.get("apply"):
            if call.kind == "exec_ws":
                self.serve_websocket(call, entry)
                return
            answer = self.server.api.answer(call)
            self.drop_unless(answer is not None)
        self.drop_unless(platform.pass_hold(call.kind, call.name, "after", self.gone))
        if fault.get("drop") == "after":
            if answer.chunks:
                answer.chunks(lambda data: None)
            raise Dropped()
        self.send_faulty(fault, answer, entry)

    def send_faulty(self, fault, answer, entry):
        if "raw" in fault or "raw_hex" in fault:
            self.wfile.write(fault["raw"].encode("latin-1") if "raw" in fault
                             else bytes.fromhex(fault["raw_hex"]))
            self.wfile.flush()
            raise Dropped()
        if "stream" in fault:
            self.send_junk(int(fault["stream"]), entry)
        if "status" in fault:
            body = fault.get("body", {"error": "simulated failure"})
            answer = Answer(fault["status"], body, kind="text" if isinstance(body, str) else "json",
                            daemon=answer.daemon if answer else False)
        elif "body" in fault:
            answer.body, answer.chunks = fault["body"].encode("utf-8", "surrogateescape"), None
            if answer.status == 204:
                answer.status = 200
        for name, value in fault.get("headers", {}).items():
            if name.lower() == "content-type":
                answer.content_type = value
            else:
                answer.headers[name] = value
        self.send_answer(answer, entry, cut=fault.get("drop") == "mid",
                         slow=float(fault.get("slow", 0)))

    def send_junk(self, total, entry):
        """A body that goes on and on; counts what the client let it send."""
        entry["status"] = 200
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                         b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b" " * 16384
        sent = 0
        while sent < total:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
            sent += len(chunk)
            self.server.platform.streamed_bytes += len(chunk)
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        raise Dropped()

    # -- reply --------------------------------------------------------------------

    def head(self, answer, framing):
        headers = {"Fly-Request-Id": uuid.uuid4().hex.upper()[:26] + "-sim",
                   "Server": "Fly/simulated", "Via": "1.1 fly.io"}
        if answer.daemon:
            headers["Sprite-Version"] = self.server.platform.switches["sprite_version"]
        else:
            headers.update({"X-Request-Id": uuid.uuid4().hex, "Vary": "accept-encoding",
                            "Cache-Control": "max-age=0, private, must-revalidate"})
        headers["Content-Type"] = answer.content_type
        headers.update(answer.headers)
        headers.update(framing)
        lines = ["HTTP/1.1 %d %s" % (answer.status, self.responses.get(answer.status, ("-",))[0])]
        lines += ["%s: %s" % item for item in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def send_answer(self, answer, entry=None, cut=False, slow=0):
        if entry is not None:
            entry["status"] = answer.status
        if answer.chunks:
            self.send_chunks(answer, cut)
        elif answer.status == 204:
            self.wfile.write(self.head(answer, {}))
        else:
            # the control plane answers in chunks, the daemon with a length
            chunked = not answer.daemon and answer.status < 300 and not slow
            framing = ({"Transfer-Encoding": "chunked"} if chunked
                       else {"Content-Length": str(len(answer.body))})
            self.wfile.write(self.head(answer, framing))
            self.send_body(answer.body, chunked, cut, slow)
        self.wfile.flush()
        if cut:
            raise Dropped()
        if entry is not None:
            entry["done"] = True

    def send_body(self, body, chunked, cut, slow):
        if self.command == "HEAD":
            return
        if slow:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                self.drop_unless(self.server.platform.hang(1 / slow, self.gone))
            return
        if cut:
            body = body[:len(body) // 2]
        if chunked:
            tail = b"" if cut else b"0\r\n\r\n"
            body = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + tail
        self.wfile.write(body)

    def send_chunks(self, answer, cut):
        self.wfile.write(self.head(answer, {"Transfer-Encoding": "chunked"}))
        written = []

        def write(data):
            written.append(data)
            if not cut:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

        answer.chunks(write)
        if cut:
            whole = b"".join(written)
            self.wfile.write(b"%x\r\n%s" % (len(whole) + 1, whole))
        else:
            self.wfile.write(b"0\r\n\r\n")

    # -- exec over a WebSocket ----------------------------------------------------

    def serve_websocket(self, call, entry):
        api, platform = self.server.api, self.server.platform
        with platform.lock:
            vm = platform.find(call.name)
            hangs = vm is not None and vm.not_ready > 0
            if vm is not None:
                vm.boot()
                vm.not_ready -= hangs
        if hangs:
            platform.hang(EXEC_HANG_SECONDS, self.gone)
            raise Dropped()
        if vm is None:
            self.send_answer(Answer(404, {"error": "sprite not found"}), entry)
            return
        self.wfile.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                          "Connection: Upgrade\r\nsprite-capabilities: control-ws\r\n"
                          "Sec-WebSocket-Accept: %s\r\n\r\n" % websocket.accept_key(
                              self.headers.get("Sec-WebSocket-Key", ""))).encode())
        self.wfile.flush()
        entry["status"] = 101
        self.run_websocket(api, call, vm)
        raise Dropped()

    def run_websocket(self, api, call, vm):
        argv = api.exec_argv(call)
        record = api.note_exec(vm, argv)
        lock = threading.Lock()

        def send(opcode, payload):
            with lock:
                self.wfile.write(websocket.frame(opcode, payload))
                self.wfile.flush()

        tty = call.arg("tty") == "true"
        send(websocket.TEXT, json.dumps({
            "type": "session_info", "session_id": "1", "command": " ".join(argv),
            "created": int(time.time()), "cols": 80, "rows": 24, "is_owner": True,
            "tty": tty}).encode())

        def emit(number, data):
            send(websocket.BINARY, data if tty else bytes([number]) + data)

        if self.server.sandbox.mode == "emulated":
            code = self.server.sandbox.run(vm, "/", {}, argv, b"", emit)
        else:
            code = self.run_interactive(api, call, vm, argv, emit)
        record["exit"] = code
        if not tty:
            send(websocket.BINARY, bytes([3, code & 0xFF]))
        send(websocket.TEXT, json.dumps({"type": "exit", "exit_code": code}).encode())

    def run_interactive(self, api, call, vm, argv, emit):
        sandbox = self.server.sandbox
        process = sandbox.start(vm, call.arg("dir", "/"), api.exec_environment(call), argv)
        threading.Thread(target=self.feed_frames, args=(process,), daemon=True).start()
        err = threading.Thread(target=pump, args=(process.stderr, 2, emit), daemon=True)
        err.start()
        pump(process.stdout, 1, emit)
        err.join()
        code = process.wait()
        sandbox.finished(vm, process)
        return code if code >= 0 else 128 - code

    def feed_frames(self, process):
        """Client frames: 0 is input, 4 its end."""
        try:
            while True:
                received = websocket.read_frame(self.rfile)
                if received is None or received[0] == websocket.CLOSE:
                    break
                opcode, payload = received
                if opcode == websocket.BINARY and payload[:1] == b"\0":
                    process.stdin.write(payload[1:])
                    process.stdin.flush()
                elif opcode == websocket.BINARY and payload[:1] == b"\4":
                    process.stdin.close()
        except (OSError, ValueError):
            pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, address, token, state_dir, tls=None):
        self.platform = Platform()
        self.sandbox = Sandbox(state_dir)
        self.api = Api(self.platform, self.sandbox)
        self.control = Control(self.platform, self.sandbox)
        self.token = token
        self.tls = tls
        self.connections = 0
        self.counter = threading.Lock()
        super().__init__(address, Handler)

    def count_connection(self):
        with self.counter:
            self.connections += 1
            return self.connections

    def finish_request(self, request, client_address):
        # in the connection's own thread: a client may take its time over TLS
        if self.tls is not None:
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except OSError:
                return
        super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass                        # a client that goes away is no error


def leave_with_parent(pid):
    """Ends the simulator when the process that started it is gone."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        except PermissionError:
            pass
        time.sleep(0.5)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Simulates the Sprites platform.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--port-file", help="gets the port once it is listening")
    parser.add_argument("--token", default=DEFAULT_TOKEN, help="the only one accepted")
    parser.add_argument("--tls-cert", help="with --tls-key: serve https")
    parser.add_argument("--tls-key")
    parser.add_argument("--state-dir", help="where VMs keep their files; removed at the end")
    parser.add_argument("--parent-pid", type=int, help="end when this process is gone")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    tls = None
    if arguments.tls_cert:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(arguments.tls_cert, arguments.tls_key)
    state_dir = tempfile.mkdtemp(prefix="sprites-sim.", dir=arguments.state_dir)
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(0))
    server = None
    try:
        server = Server((arguments.host, arguments.port), arguments.token, state_dir, tls)
        port = server.server_address[1]
        if not arguments.quiet:
            print("listening on %s://%s:%d" % ("https" if tls else "http", arguments.host, port),
                  flush=True)
        if arguments.port_file:
            with open(arguments.port_file + ".new", "w") as file:
                file.write("%d\n" % port)
            os.rename(arguments.port_file + ".new", arguments.port_file)
        if arguments.parent_pid:
            threading.Thread(target=leave_with_parent, args=(arguments.parent_pid,),
                             daemon=True).start()
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        if server is not None:
            server.sandbox.stop()
        shutil.rmtree(state_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
