"""Tests of the simulator: the contract, every switch, fault and hold, and the ground truth."""
import base64
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import websocket                                                    # noqa: E402
from sprites_sim import DEFAULT_TOKEN, Server                       # noqa: E402

DENY = {"rules": [{"domain": "*", "action": "deny"}]}


class Simulated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.state_dir = tempfile.mkdtemp()
        cls.server = Server(("127.0.0.1", 0), DEFAULT_TOKEN, cls.state_dir)
        cls.port = cls.server.server_address[1]
        threading.Thread(target=cls.server.serve_forever, args=(0.05,), daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()
        cls.server.sandbox.stop()
        shutil.rmtree(cls.state_dir, ignore_errors=True)

    def setUp(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        self.control("reset", {})

    def tearDown(self):
        self.connection.close()

    def control(self, path, body=None):
        control = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        control.request("GET" if body is None else "POST", "/__sim/" + path,
                        None if body is None else json.dumps(body))
        reply = control.getresponse()
        data = json.loads(reply.read())
        control.close()
        self.assertEqual(reply.status, 200, data)
        return data

    def call(self, method, path, body=None, token=DEFAULT_TOKEN, raw=None):
        self.connection.request(method, "/v1/" + path, raw if body is None else json.dumps(body),
                                {"Authorization": "Bearer " + token})
        reply = self.connection.getresponse()
        data = reply.read()
        self.headers = reply.headers
        try:
            return reply.status, json.loads(data)
        except ValueError:
            return reply.status, data

    def create(self, name="demo"):
        return self.call("POST", "sprites", {"name": name})

    def exec(self, *argv, **query):
        pairs = [("cmd", a) for a in argv] + list(query.items())
        return self.call("POST", "sprites/demo/exec?" + urllib.parse.urlencode(pairs))

    def vm(self, name="demo"):
        state = self.control("state")
        return state["vms"][state["names"][name]]


class Contract(Simulated):
    def test_create_get_delete(self):
        status, sprite = self.create()
        self.assertEqual((status, sprite["status"], sprite["version"]), (201, "cold", None))
        self.assertTrue(sprite["id"].startswith("sprite-"))
        self.assertIn("X-Request-Id", self.headers)
        self.assertIn("Fly-Request-Id", self.headers)
        self.assertNotIn("Sprite-Version", self.headers)
        self.assertEqual(self.call("GET", "sprites/demo"), (200, sprite))
        self.assertEqual(self.call("DELETE", "sprites/demo"), (204, b""))
        self.assertEqual(self.call("GET", "sprites/demo"), (404, {"error": "sprite not found"}))
        self.assertEqual(self.call("DELETE", "sprites/demo")[0], 404)

    def test_token(self):
        self.assertEqual(self.call("GET", "sprites/demo", token="x"),
                         (401, {"error": "authentication failed"}))

    def test_names(self):
        for name in ("", "A", "a b", "-a", "a" * 64, None, 7):
            self.assertEqual(self.call("POST", "sprites", {"name": name})[0], 400, name)
        self.assertEqual(self.create()[0], 201)
        status, body = self.create()
        self.assertEqual(status, 409)
        self.assertIn("already exists", body["error"])

    def test_policy(self):
        self.create()
        self.assertEqual(self.call("GET", "sprites/demo/policy/network"), (200, {"rules": []}))
        self.assertIn("Sprite-Version", self.headers)
        self.assertFalse(self.vm()["enforced"])
        self.assertEqual(self.call("POST", "sprites/demo/policy/network", DENY), (204, b""))
        self.assertEqual(self.call("GET", "sprites/demo/policy/network"), (200, DENY))
        self.assertTrue(self.vm()["enforced"])
        for bad in ([], {"rules": 7}, {"rules": [{}]}, {"rules": [{"domain": "a", "include": "b"}]}):
            self.assertEqual(self.call("POST", "sprites/demo/policy/network", bad)[0], 400)
        self.assertEqual(self.call("GET", "sprites/none/policy/network"),
                         (404, {"error": "sprite not found"}))

    def test_policy_survives_sleep_and_goes_with_the_vm(self):
        self.create()
        self.call("POST", "sprites/demo/policy/network", DENY)
        self.control("vm/demo/sleep", {})
        self.assertEqual(self.call("GET", "sprites/demo/policy/network")[1], DENY)
        old = self.vm()["id"]
        self.control("vm/demo/replace", {})
        self.assertEqual(self.call("GET", "sprites/demo/policy/network")[1], {"rules": []})
        self.assertNotEqual(self.vm()["id"], old)

    def test_list(self):
        for number in range(7):
            self.create("p-%d" % number)
        self.create("q")
        status, page = self.call("GET", "sprites?prefix=p-&max_results=3")
        self.assertEqual((status, len(page["sprites"]), page["has_more"]), (200, 3, True))
        seen = [s["name"] for s in page["sprites"]]
        while page["next_continuation_token"]:
            page = self.call("GET", "sprites?prefix=p-&max_results=3&continuation_token="
                             + page["next_continuation_token"])[1]
            seen += [s["name"] for s in page["sprites"]]
        self.assertEqual(seen, ["p-%d" % n for n in range(7)])
        self.assertEqual((page["has_more"], page["next_continuation_token"]), (False, None))

    def needs_sandbox(self):
        if self.control("state")["sandbox"] != "unshare":
            self.skipTest("user namespaces are not permitted here")

    def test_exec(self):
        self.needs_sandbox()
        self.create()
        status, body = self.exec("sh", "-c", "echo out; echo err >&2; exit 3")
        self.assertEqual(status, 200)
        self.assertEqual(body[-2:], b"\x03\x03")
        self.assertIn(b"\x01out\n", body)
        self.assertEqual(self.exec("sh", "-c", "kill -TERM $$")[1][-2:], bytes([3, 143]))
        self.assertEqual(self.exec("mkdir", "-p", "/workspace")[1], b"\x03\x00")
        self.assertFalse(os.path.exists("/workspace"))
        self.assertEqual(self.exec("pwd", dir="/workspace")[1], b"\x01/workspace\n\x03\x00")
        self.assertEqual(self.exec("touch", "/usr/x")[1][-1], 1)
        self.assertEqual(self.exec("true", dir="/nowhere")[0], 400)
        self.assertTrue(self.vm()["exec_while_open"])

    def test_exec_stdin_and_body(self):
        self.create()
        path = "sprites/demo/exec?cmd=cat&stdin=true"
        self.assertEqual(self.call("POST", path, raw="in\0put")[1], b"\x01in\0put\x03\x00")
        self.assertEqual(self.call("POST", "sprites/demo/exec?cmd=cat", raw="x")[1], b"\x03\x00")

    def test_files(self):
        self.create()
        path = "path=a/b%20c&workingDir=/w"
        self.assertEqual(self.call("PUT", "sprites/demo/fs/write?" + path, raw="x")[0], 404)
        status, body = self.call("PUT", "sprites/demo/fs/write?mkdir=true&mode=0600&" + path, raw="hey")
        self.assertEqual((status, body), (200, {"path": "/w/a/b c", "size": 3, "mode": "0600"}))
        self.assertEqual(self.call("GET", "sprites/demo/fs/read?" + path), (200, b"hey"))
        self.assertEqual(self.call("GET", "sprites/demo/fs/read?path=/none")[1]["code"], "ENOENT")
        listed = self.call("GET", "sprites/demo/fs/list?path=/w/a")[1]
        self.assertEqual((listed["count"], listed["entries"][0]["type"]), (1, "file"))
        self.assertEqual(self.call("GET", "sprites/demo/fs/read?path=../../etc/hostname")[0], 404)
        self.assertEqual(self.call("DELETE", "sprites/demo/fs/delete?path=/w&recursive=true")[0], 200)

    def test_checkpoints(self):
        self.create()
        self.call("POST", "sprites/demo/policy/network", DENY)
        self.assertEqual(self.call("GET", "sprites/demo/checkpoints")[1][0]["id"], "v0")
        self.assertEqual(self.call("POST", "sprites/demo/checkpoint", {"comment": "c"})[0], 200)
        self.call("POST", "sprites/demo/checkpoints/v1/restore")
        self.assertEqual(self.vm()["policy"], DENY)
        self.control("switches", {"restore": "resets"})
        self.call("POST", "sprites/demo/checkpoints/v1/restore")
        self.assertEqual(self.vm()["policy"], {"rules": []})
        status, body = self.call("POST", "sprites/demo/checkpoints/none/restore")
        self.assertEqual((status, body["type"]), (200, "error"))

    def test_websocket(self):
        self.create()
        client = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        key = base64.b64encode(b"0123456789abcdef").decode()
        client.sendall(("GET /v1/sprites/demo/exec?cmd=sh&cmd=-c&cmd=cat%%3Bexit%%205 HTTP/1.1\r\nHost: x\r\n"
                        "Authorization: Bearer %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n"
                        % (DEFAULT_TOKEN, key)).encode())
        stream = client.makefile("rb")
        self.assertIn(b"101", stream.readline())
        while stream.readline() != b"\r\n":
            pass
        self.assertEqual(json.loads(websocket.read_frame(stream)[1])["type"], "session_info")
        if self.control("state")["sandbox"] == "unshare":
            for payload in (b"\0hello", b"\4"):
                client.sendall(bytes([0x82, 0x80 | len(payload), 0, 0, 0, 0]) + payload)
            self.assertEqual(websocket.read_frame(stream), (2, b"\1hello"))
            self.assertEqual(websocket.read_frame(stream), (2, b"\3\5"))
            self.assertEqual(json.loads(websocket.read_frame(stream)[1]),
                             {"type": "exit", "exit_code": 5})
        client.close()

    def test_url_limit(self):
        self.create()
        self.assertEqual(self.exec("echo", "x" * 20000)[0], 431)

    def test_malformed_requests_do_not_end_it(self):
        for junk in (b"\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/sprites HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
                client.sendall(junk)
                client.recv(100)
        self.assertEqual(self.create()[0], 201)


class Switches(Simulated):
    def test_statuses(self):
        self.control("switches", {"create_status": 200, "duplicate": "400", "delete_status": 200})
        self.assertEqual(self.create()[0], 200)
        self.assertEqual(self.create()[0], 400)
        self.assertEqual(self.call("DELETE", "sprites/demo")[0], 200)
        for missing in ("410", "500"):
            self.control("switches", {"missing": missing})
            self.assertEqual(self.call("GET", "sprites/demo")[0], int(missing))
            self.assertEqual(self.call("DELETE", "sprites/demo")[0], int(missing))

    def test_ids(self):
        self.control("switches", {"create_body": "no_id"})
        self.assertNotIn("id", self.create("a")[1])
        self.control("switches", {"create_body": "empty_id"})
        self.assertEqual(self.create("b")[1]["id"], "")
        self.control("switches", {"create_body": "full", "id_form": "uuid"})
        self.assertEqual(len(self.create("c")[1]["id"]), 36)
        self.control("switches", {"id_form": "none"})
        self.assertNotIn("id", self.call("GET", "sprites/c")[1])
        self.control("switches", {"id_form": "empty"})
        self.assertEqual(self.call("GET", "sprites/c")[1]["id"], "")

    def test_policy_forms(self):
        self.create()
        two = {"rules": [{"domain": "a.com", "action": "allow"}] + DENY["rules"]}
        for form, status, stored in (("200_body", 200, two), ("200_empty", 200, two),
                                     ("200_fewer", 200, {"rules": two["rules"][:1]})):
            self.control("switches", {"policy_set": form})
            self.assertEqual(self.call("POST", "sprites/demo/policy/network", two)[0], status)
            self.assertEqual(self.vm()["policy"], stored, form)
        self.control("switches", {"policy_set": "204_not_stored"})
        self.assertEqual(self.call("POST", "sprites/demo/policy/network", DENY)[0], 204)
        self.assertEqual(self.vm()["policy"], {"rules": two["rules"][:1]})
        self.control("switches", {"policy_set": "204", "policy_get": "reordered"})
        self.call("POST", "sprites/demo/policy/network", two)
        self.assertEqual(self.call("GET", "sprites/demo/policy/network")[1]["rules"], two["rules"][::-1])
        self.control("switches", {"policy_get": "key_order"})
        self.assertEqual(self.call("GET", "sprites/demo/policy/network")[1], two)

    def test_framing(self):
        self.create()
        for framing in ("merged", "split"):
            self.control("switches", {"exec_framing": framing})
            self.assertEqual(self.exec("echo", "abc")[1], b"\x01abc\n\x03\x00")
        self.control("switches", {"exec_framing": "no_exit"})
        self.assertEqual(self.exec("echo", "abc")[1], b"\x01abc\n")

    def test_emulation(self):
        self.create()
        mode, self.server.sandbox.mode = self.server.sandbox.mode, "emulated"
        try:
            self.assertEqual(self.exec("sh", "-c", "mkdir -p -- \"$@\"", "sh", "/a/b")[1], b"\x03\x00")
            self.assertEqual(self.call("GET", "sprites/demo/fs/list?path=/a")[1]["count"], 1)
            self.assertEqual(self.exec("true")[1], b"\x03\x00")
            self.assertEqual(self.exec("rm", "-r", "/")[1][-1], 127)
        finally:
            self.server.sandbox.mode = mode

    def test_lists(self):
        self.create()
        self.control("switches", {"list_items": "short", "list_has_more": "lies_true"})
        page = self.call("GET", "sprites")[1]
        self.assertEqual(set(page["sprites"][0]), {"name", "org_slug", "updated_at"})
        self.assertEqual((page["has_more"], page["next_continuation_token"]), (True, None))
        self.control("switches", {"list_has_more": "lies_false", "list_page_max": 1})
        self.create("demo2")
        page = self.call("GET", "sprites")[1]
        self.assertEqual(page["has_more"], False)
        self.assertTrue(page["next_continuation_token"])

    def test_rate_limit(self):
        self.control("switches", {"rate_limit": {"create": 1}})
        self.assertEqual(self.create("a")[0], 201)
        status, body = self.create("b")
        self.assertEqual((status, body["error"], body["retry_after_seconds"]),
                         (429, "sprite_creation_rate_limited", 30))
        self.assertEqual(self.headers["Retry-After"], "30")
        self.control("switches", {"rate_limit_headers": False, "rate_limit_body": "error_code"})
        self.assertEqual(self.create("b")[1]["error_code"], "sprite_creation_rate_limited")
        self.assertNotIn("Retry-After", self.headers)
        self.control("switches", {"rate_limit_body": "bare"})
        self.assertEqual(set(self.create("b")[1]), {"error"})

    def test_replaced_in_between(self):
        self.control("switches", {"replace_between": "create_policy"})
        first = self.create()[1]["id"]
        self.call("POST", "sprites/demo/policy/network", DENY)
        self.assertNotEqual(self.vm()["id"], first)
        self.control("reset", {})
        self.control("switches", {"replace_between": "policy_verify"})
        self.create()
        self.call("POST", "sprites/demo/policy/network", DENY)
        self.assertFalse(self.vm()["enforced"])

    def test_sleeping_files(self):
        self.create()
        self.call("PUT", "sprites/demo/fs/write?path=/a", raw="x")
        self.control("vm/demo/sleep", {})
        slow = http.client.HTTPConnection("127.0.0.1", self.port, timeout=0.3)
        slow.request("GET", "/v1/sprites/demo/fs/read?path=/a",
                     headers={"Authorization": "Bearer " + DEFAULT_TOKEN})
        self.assertRaises(OSError, slow.getresponse)
        slow.close()
        self.exec("true")
        self.assertEqual(self.call("GET", "sprites/demo/fs/read?path=/a"), (200, b"x"))

    def test_unknown_switches_are_refused(self):
        for switches in ({"no_such": 1}, {"missing": "503"}):
            self.assertRaises(AssertionError, self.control, "switches", switches)

    def test_mkdir_params(self):
        self.create()
        for allowed, other in (("mkdir", "mkdirParents"), ("mkdirParents", "mkdir")):
            self.control("switches", {"mkdir_params": allowed + "_only"})
            path = "sprites/demo/fs/write?path=/%s/a&%s=true"
            self.assertEqual(self.call("PUT", path % (allowed, other), raw="x")[0], 404)
            self.assertEqual(self.call("PUT", path % (allowed, allowed), raw="x")[0], 200)


class Faults(Simulated):
    def fault(self, **fault):
        self.control("fault", fault)

    def broken(self, method, path, body=None):
        with self.assertRaises((OSError, http.client.HTTPException)):
            self.call(method, path, body)
        self.connection.close()

    def test_status_skip_times_name(self):
        self.create()
        self.fault(kind="get", status=503, skip=1, times=2, body="no", headers={"Retry-After": "9"})
        self.fault(kind="get", name="other", status=500)
        self.assertEqual([self.call("GET", "sprites/demo")[0] for _ in range(4)], [200, 503, 503, 200])

    def test_status_after_the_effect(self):
        self.fault(kind="create", status=504, apply=True)
        self.assertEqual(self.create()[0], 504)
        self.assertEqual(self.call("GET", "sprites/demo")[0], 200)

    def test_drops(self):
        self.fault(kind="create", drop="before")
        self.broken("POST", "sprites", {"name": "demo"})
        self.assertEqual(self.call("GET", "sprites/demo")[0], 404)
        self.fault(kind="create", drop="after")
        self.broken("POST", "sprites", {"name": "demo"})
        self.assertEqual(self.call("GET", "sprites/demo")[0], 200)
        self.fault(kind="get", drop="mid")
        self.broken("GET", "sprites/demo")

    def test_pretend(self):
        self.create()
        self.fault(kind="policy_set", pretend=True)
        self.assertEqual(self.call("POST", "sprites/demo/policy/network", DENY)[0], 204)
        self.assertFalse(self.vm()["enforced"])

    def test_bodies(self):
        self.create()
        self.fault(kind="get", body="hello", headers={"Content-Type": "text/x"})
        self.assertEqual(self.call("GET", "sprites/demo"), (200, b"hello"))
        self.assertEqual(self.headers["Content-Type"], "text/x")
        self.fault(kind="get", raw="nonsense")
        self.broken("GET", "sprites/demo")
        self.fault(kind="get", raw_hex=b"HTTP/1.1 299 x\r\nContent-Length: 0\r\n\r\n".hex())
        self.assertEqual(self.call("GET", "sprites/demo")[0], 299)

    def test_hang_and_slow(self):
        self.create()
        self.fault(kind="get", hang=0.2)
        self.assertEqual(self.call("GET", "sprites/demo")[0], 200)
        self.fault(kind="get", body="abc", slow=50)
        self.assertEqual(self.call("GET", "sprites/demo")[1], b"abc")

    def test_stream(self):
        self.create()
        self.fault(kind="get", stream=100000)
        self.assertGreaterEqual(len(self.call("GET", "sprites/demo")[1]), 100000)
        self.assertGreaterEqual(self.control("state")["streamed_bytes"], 100000)

    def test_exec_not_ready(self):
        self.create()
        self.control("vm/demo/exec_not_ready", {"times": 1})
        self.connection.timeout = 0.3
        self.broken("POST", "sprites/demo/exec?cmd=true")
        self.connection.timeout = 5
        self.assertEqual(self.exec("true")[1], b"\x03\x00")

    def test_bad_faults_are_refused(self):
        self.assertRaises(AssertionError, self.control, "fault", {"kind": "nothing"})
        self.assertRaises(AssertionError, self.control, "no_such_call", {})


class Books(Simulated):
    def test_holds(self):
        for when, there in (("before", 404), ("after", 200)):
            self.control("reset", {})
            self.control("hold", {"kind": "create", "when": when})
            caller = threading.Thread(target=self.create)
            caller.start()
            self.assertEqual(self.control("held?count=1")["held"], 1)
            other = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            other.request("GET", "/v1/sprites/demo", headers={"Authorization": "Bearer " + DEFAULT_TOKEN})
            self.assertEqual(other.getresponse().status, there)
            other.close()
            self.control("release", {})
            caller.join()
            self.assertEqual(self.control("held")["held"], 0)

    def test_requests(self):
        self.create()
        self.call("GET", "sprites/demo")
        report = self.control("requests?name=demo")
        self.assertEqual(report["counts"], {"create": 1, "get": 1})
        self.assertEqual((report["total"], report["connections"]), (2, 1))
        self.assertEqual(report["log"][0]["headers"]["authorization"], "Bearer ***")
        self.assertNotIn(DEFAULT_TOKEN, json.dumps(report))
        self.control("requests/clear", {})
        self.assertEqual(self.control("requests")["total"], 0)
        self.assertEqual(self.control("wait_requests?kind=get&count=1&timeout=0.1")["count"], 0)

    def test_ground_truth(self):
        self.create()
        self.call("POST", "sprites/demo/policy/network", DENY)
        self.exec("true")
        vm = self.vm()
        self.assertEqual((vm["pushes"], vm["exec_while_open"], vm["created_by"]), (1, False, "api"))
        self.control("vm/demo/policy", {"rules": None})
        self.exec("true")
        vm = self.vm()
        self.assertEqual((vm["enforced"], vm["exec_while_open"]), (False, True))
        self.assertEqual([e["open"] for e in vm["execs"]], [False, True])
        self.assertEqual([h["event"] for h in vm["history"]],
                         ["created", "policy", "policy by another client"])
        self.call("DELETE", "sprites/demo")
        self.assertFalse(self.control("state")["vms"][vm["id"]]["alive"])


class Program(unittest.TestCase):
    def test_start_tls_and_stop(self):
        scratch = tempfile.mkdtemp()
        cert, key = os.path.join(scratch, "cert"), os.path.join(scratch, "key")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                        "-out", cert, "-days", "1", "-subj", "/CN=localhost"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        program = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "sprites_sim.py"), "--tls-cert", cert, "--tls-key", key,
             "--state-dir", scratch], stdout=subprocess.PIPE, text=True)
        line = program.stdout.readline()
        self.assertRegex(line, r"^listening on https://127\.0\.0\.1:\d+$")
        client = http.client.HTTPSConnection("127.0.0.1", int(line.rsplit(":", 1)[1]), timeout=5,
                                             context=ssl._create_unverified_context())
        client.request("GET", "/v1/sprites", headers={"Authorization": "Bearer " + DEFAULT_TOKEN})
        self.assertEqual(client.getresponse().status, 200)
        client.close()
        program.terminate()
        self.assertEqual(program.wait(10), 0)
        program.stdout.close()
        self.assertEqual(sorted(os.listdir(scratch)), ["cert", "key"])
        shutil.rmtree(scratch)


if __name__ == "__main__":
    unittest.main()
