#!/usr/bin/env python3
"""Servers on loopback that leave a client waiting, each at another stage.

    bad_server.py PORT_FILE PARENT_PID

writes a line "stage port" for each of them to PORT_FILE and runs until it is
killed or the parent is gone.

    connect   the backlog is full: a connection is not even accepted
    tls       accepts, and never says a word
    wait      reads the request, and never answers
    receive   sends headers and half a body
    send      answers GETs, and does not read the body of a POST
    retry     answers GETs, and asks who POSTs to come back in a minute
"""
import json
import os
import socket
import sys
import threading
import time

SPRITE = json.dumps({"id": "vm", "name": "stuck", "status": "running", "url": "https://stuck"})
held = []                               # sockets that must stay open


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
    return head


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
            size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            while size > 0:
                size -= len(client.recv(size))
            client.sendall(reply("429 Too Many Requests", "{}", "Retry-After: 60\r\n"))
        else:
            client.sendall(reply("200 OK", SPRITE))


def accept(stage, listener):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(stage, client), daemon=True).start()


def listen(stage):
    listener = socket.socket()
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
    ports = {s: listen(s) for s in ("connect", "tls", "wait", "receive", "send", "retry")}
    with open(sys.argv[1] + ".new", "w") as file:
        file.writelines("%s %d\n" % item for item in ports.items())
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    while os.path.exists("/proc/%s" % sys.argv[2]):
        time.sleep(0.5)


if __name__ == "__main__":
    main()
