#!/usr/bin/env python3
"""What the demo asks of the simulated platform, and how it tells the answers.

    platform.py URL tell PATH [JSON]   a control call, such as "tell vm/NAME/replace {}"
    platform.py URL saw                the requests since the last time it was asked
    platform.py URL truth NAME         what the VM of that name runs, by the platform's books
"""
import json
import sys
import urllib.request


def control(url, path, body=None):
    request = urllib.request.Request(url + "/__sim/" + path,
                                     data=None if body is None else body.encode())
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def saw(url):
    seen = control(url, "requests")
    total = seen["total"]
    kinds = []
    for entry in seen["log"]:
        if entry["kind"] not in kinds:
            kinds.append(entry["kind"])
    print("The platform saw %s%s%s" % (
        total or "no", " request" if total == 1 else " requests",
        ": " + ", ".join("%s %d" % (kind, seen["counts"][kind]) for kind in kinds) if kinds else ""))
    for entry in seen["log"]:
        print("    %-6s %s -> %s" % (entry["method"], entry["path"], entry["status"]))
    control(url, "requests/clear", "{}")


def truth(url, name):
    state = control(url, "state")
    vm = state["vms"].get(state["names"].get(name))
    if vm is None:
        print("There is no VM " + name)
        return
    rules = vm["policy"].get("rules")
    allowed = [rule["domain"] for rule in rules or () if rule.get("action") == "allow"]
    print("In truth, VM %s (%s) %s" % (
        name, vm["id"], "is open to the whole internet" if not rules
        else "may reach " + (", ".join(allowed) or "nothing")))


def main():
    url, action, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    if action == "tell":
        control(url, rest[0], rest[1] if len(rest) > 1 else "{}")
    elif action == "saw":
        saw(url)
    else:
        truth(url, rest[0])


if __name__ == "__main__":
    main()
