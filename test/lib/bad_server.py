#!/usr/bin/env python3
"""Servers on loopback that leave a client waiting, or answer as none should.

    bad_server.py PORT_FILE PARENT_PID

writes a line "name port" for each of them to PORT_FILE and runs until it is
killed or the parent is gone.  These stop at one stage, whatever the path:

    connect   the backlog is full: a connection is not even accepted
    tls       accepts, and never says a word
    wait      reads the request, and never answers
    receive   sends headers and half a body
    send      answers GETs, and does not read the body of a POST
    retry     answers GETs, and asks who POSTs to come back in a minute

The server "path" does what the path names: see the functions below PATHS.  It
tells what it has seen at /report: connections accepted, and for each path the
requests, the head and the length of the body of the last one, how much it could
send of what it sends on its own, and the connections it has closed.
"""
import gzip
import json
import os
import socket
import struct
import sys
import threading
import time

SPRITE = json.dumps({"id": "vm", "name": "stuck", "status": "running", "url": "https://stuck"})
BLOCK = b"x" * 65536
held = []                               # sockets that must stay open
seen = {"accepted": 0, "requests": {}, "head": {}, "body": {}, "sent": {}, "closed": {}}
seen_lock = threading.Lock()


def reply(status, body, headers=""):
    return ("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s"
            % (status, len(body), headers, body)).encode()


def read_head(client):
    head = b""
    while b"\r\n\r\n" not in head:
        data = client.recv(1)
        if not data:
            return None
        head += data
        if head == b"\x16":             # the first byte of a TLS handshake
            client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return None
    return head


def read_body(client, head):
    """Reads the body away; its length."""
    if b"content-length:" not in head.lower():
        return 0
    size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    left = size
    while left > 0:
        data = client.recv(left)
        if not data:
            break
        left -= len(data)
    return size - left


def serve(stage, client):
    held.append(client)
    if stage in ("tls", "connect"):
        return
    while True:
        head = read_head(client)
        if head is None:
            return
        posted = head.startswith(b"POST")
        if stage == "wait" or (stage == "send" and posted):
            return
        if stage == "receive":
            client.sendall(reply("200 OK", SPRITE)[:-10])
            return
        if posted:
            read_body(client, head)
            client.sendall(reply("429 Too Many Requests", "{}", "Retry-After: 60\r\n"))
        else:
            client.sendall(reply("200 OK", SPRITE))


# What the server "path" does: each is called with the connection, the head of
# the request and how many came on this connection, and returns whether the
# connection is kept.

def ok(client, head, _):
    client.sendall(reply("200 OK", json.dumps({"path": target(head)}),
                         "Fly-Request-Id: 01ABC\x01\xe9-lhr\r\n"))
    return True


def no_content(client, *_):
    client.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    return True


def silent(client, *_):
    held.append(client)
    client.recv(1)                      # until the client has gone
    return False


def drip(client, *_):
    """A byte every 50 ms: each arrives long before any idle limit."""
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    return endless(client, "/drip", b"x", 0.05)


def drip_headers(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
    return endless(client, "/drip_headers", b"x", 0.05)


def endless(client, path, block, pause=0.0):
    """Sends for as long as the client takes it, and notes how much that was."""
    while True:
        try:
            n = client.send(block)
        except OSError:
            return False
        with seen_lock:
            seen["sent"][path] = seen["sent"].get(path, 0) + n
        if pause:
            time.sleep(pause)


def many_headers(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    return endless(client, "/many_headers", b"X-A: b\r\n" * 500)


def many_interim(client, *_):
    return endless(client, "/many_interim", b"HTTP/1.1 100 Continue\r\n\r\n" * 200)


def long_header(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
    return endless(client, "/long_header", BLOCK)


def long_trailers(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
    return endless(client, "/long_trailers", b"X-A: b\r\n" * 500)


def large_length(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
    return endless(client, "/large_length", BLOCK)


def large_chunked(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    return endless(client, "/large_chunked", b"10000\r\n" + BLOCK + b"\r\n")


def large_closed(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    return endless(client, "/large_closed", BLOCK)


def packed(client, *_):
    data = gzip.compress(b"plain text")
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(data), data))
    return True


def packed_transfer(client, *_):
    """4 MB, packed where it is not content but transfer."""
    data = gzip.compress(bytes(4_000_000))
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
                   % (len(data), data))
    return False


def redirect(client, head, _):
    port = client.getsockname()[1]
    client.sendall(reply("302 Found", "", "Location: http://localhost:%d/redirected\r\n" % port))
    return True


def challenge(client, *_):
    client.sendall(reply("401 Unauthorized", "{}", 'WWW-Authenticate: Basic realm="x"\r\n'
                         "Set-Cookie: a=b; Path=/\r\nConnection: keep-alive\r\n"))
    return True


def reset(client, *_):
    client.sendall(reply("200 OK", SPRITE)[:-10])
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def cut_length(client, *_):
    client.sendall(reply("200 OK", SPRITE)[:-10])
    return False


def cut_chunk(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf")
    return False


def cut_chunks(client, *_):
    """A whole chunk, and not the one that ends the body."""
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n")
    return False


def cut_head(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/js")
    return False


def chunked(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n")
    return True


def closed(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\nwho knows")
    return False


def interim(client, *_):
    client.sendall(b"HTTP/1.1 103 Early Hints\r\nRetry-After: 7\r\nContent-Type: text/x\r\n\r\n"
                   b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    return True


def nothing(*_):
    return False


def garbage(client, *_):
    client.sendall(b"SSH-2.0-OpenSSH_9.2\r\nnot HTTP at all\r\n")
    return False


def bad_length(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nbody")
    return False


def bad_chunk(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nbody\r\n")
    return False


def zero_bytes(client, *_):
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na\0b\0c")
    return True


def dying(client, head, count):
    """Answers the first request of a connection; reads a second and hangs up."""
    return ok(client, head, count) if count == 1 else False


def early(client, *_):
    """Two replies at once to one request: the second is nobody's."""
    client.sendall(reply("200 OK", "first") + reply("200 OK", "stray"))
    return True


def late(client, *_):
    """The same, with the second when the connection is idle."""
    client.sendall(reply("200 OK", "first"))
    time.sleep(0.05)
    client.sendall(reply("200 OK", "stray"))
    with seen_lock:
        seen["sent"]["/late"] = seen["sent"].get("/late", 0) + 1
    return True


def wait_until(client, head, _):
    """429 with the value in the query as it stands there, "+" being a space."""
    value = target(head).split("?")[1].replace("+", " ")
    client.sendall(reply("429 Too Many Requests", "{}", "Retry-After: %s\r\n" % value))
    return True


def report(client, *_):
    with seen_lock:
        client.sendall(reply("200 OK", json.dumps(seen)))
    return False


PATHS = (ok, no_content, silent, drip, drip_headers, many_headers, many_interim, long_header,
         long_trailers, large_length, large_chunked, large_closed, packed, packed_transfer,
         redirect, challenge, reset, cut_length, cut_chunk, cut_chunks, cut_head, chunked, closed,
         interim, nothing, garbage, bad_length, bad_chunk, zero_bytes, dying, early, late,
         wait_until, report)


def target(head):
    return head.split(b" ")[1].decode("latin-1")


def serve_path(client):
    count = 0
    kept = True
    while kept:
        head = read_head(client)
        if head is None:
            break
        length = read_body(client, head)
        count += 1
        path = target(head).split("?")[0]
        if path != "/report":
            with seen_lock:
                seen["accepted"] += count == 1
                seen["requests"][path] = seen["requests"].get(path, 0) + 1
                seen["head"][path] = head.decode("latin-1")
                seen["sent"].setdefault(path, 0)
                seen["body"][path] = length
        act = {f.__name__: f for f in PATHS}.get(path.strip("/"), ok)
        try:
            kept = act(client, head, count)
        except OSError:
            kept = False
        with seen_lock:
            seen["closed"][path] = seen["closed"].get(path, 0) + (not kept)
    client.close()


def accept(stage, listener):
    while True:
        client, _ = listener.accept()
        work = (serve_path, (client,)) if stage == "path" else (serve, (stage, client))
        threading.Thread(target=work[0], args=work[1], daemon=True).start()


def listen(stage):
    listener = socket.socket()
    if stage != "path":
        # small, so that a body that is not read fills it at once
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    if stage == "connect":
        listener.listen(0)
        for _ in range(4):              # fills the backlog
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            held.append(client)
        held.append(listener)
    else:
        listener.listen(64)
        threading.Thread(target=accept, args=(stage, listener), daemon=True).start()
    return listener.getsockname()[1]


def main():
    names = ("connect", "tls", "wait", "receive", "send", "retry", "path")
    ports = {s: listen(s) for s in names}
    with open(sys.argv[1] + ".new", "w") as file:
        file.writelines("%s %d\n" % item for item in ports.items())
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    while os.path.exists("/proc/%s" % sys.argv[2]):
        time.sleep(0.5)


if __name__ == "__main__":
    main()
