"""Runs commands inside a VM's directory, never outside it.

With util-linux's unshare and user namespaces a command gets a root of its own:
the VM's directory, with the host's programs mounted read-only.  Where that is
not permitted, a few commands are emulated and all others are refused.
"""
import os
import shutil
import subprocess
import threading

MAX_OUTPUT = 256 * 1024 * 1024
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SKELETON = ("usr", "proc", "dev", "etc", "tmp", "home/sprite", "run", "var/tmp")
LINKS = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")

# $1 is the VM's directory, $2 the working directory in it; the rest is the
# environment and the command.  A mount that fails must not leave the host's
# programs writable, hence set -e.
ENTER = r'''set -e
root=$1; dir=$2; shift 2
mount --rbind /usr "$root/usr"
mount -o remount,ro,bind "$root/usr"
for name in null zero full random urandom; do
    : > "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"
done
mount -t proc proc "$root/proc" 2>/dev/null || true
cd "$root$dir"
# not exec: the first process of a pid namespace is spared most signals
/usr/sbin/chroot "$root" /bin/sh -c 'cd -- "$1" || exit 126; shift; exec /usr/bin/env -i "$@"' sh "$dir" "$@" || exit $?
exit 0
'''


def make_root(root):
    """A bare root directory; /workspace is left to whoever needs it."""
    for name in SKELETON:
        os.makedirs(os.path.join(root, name), exist_ok=True)
    os.chmod(os.path.join(root, "tmp"), 0o1777)
    for name in LINKS:
        host, link = "/" + name, os.path.join(root, name)
        if os.path.islink(link) or not os.path.lexists(host):
            continue
        if os.path.islink(host):
            os.symlink(os.readlink(host), link)
    with open(os.path.join(root, "etc/passwd"), "w") as passwd:
        passwd.write("root:x:0:0::/root:/bin/sh\nsprite:x:1000:1000::/home/sprite:/bin/sh\n")


def host_path(root, path):
    """The host's path for a path inside the VM; the VM cannot point outside."""
    inside = os.path.normpath("/" + path).lstrip("/")
    full = os.path.realpath(os.path.join(root, inside))
    base = os.path.realpath(root)
    if full != base and not full.startswith(base + os.sep):
        full = os.path.join(base, inside)
    return full


def namespaces_work():
    """Tries the whole entry once, with a root of its own."""
    import tempfile
    root = tempfile.mkdtemp(prefix="sprites-sim-probe.")
    try:
        make_root(root)
        done = subprocess.run(command_line(root, "/", {"PATH": DEFAULT_PATH}, ["true"]),
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=20)
        return done.returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        shutil.rmtree(root, ignore_errors=True)


def command_line(root, directory, env, argv):
    return (["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child",
             "/bin/sh", "-c", ENTER, "sh", root, directory]
            + ["%s=%s" % item for item in env.items()] + list(argv))


class Emulated:
    """Stands in for a process where there are no namespaces."""

    def __init__(self, root, directory, argv, stdin):
        self.out, self.err, self.code = b"", b"", 0
        if argv[:1] == ["sh"] and "-c" in argv[1:2] and "exec \"$@\"" in argv[2]:
            directory, argv = argv[4], argv[5:]     # the self-healing form
            os.makedirs(host_path(root, directory), exist_ok=True)
        if argv[:1] == ["sh"] and argv[1:2] == ["-c"] and argv[2].startswith("mkdir -p"):
            argv = ["mkdir", "-p"] + argv[4:]
        if argv[:2] == ["mkdir", "-p"]:
            self.make(root, directory, [a for a in argv[2:] if a != "--"])
        elif argv[:1] == ["echo"]:
            self.out = " ".join(argv[1:]).encode() + b"\n"
        elif argv == ["cat"]:
            self.out = stdin
        elif argv[:1] != ["true"] and argv[:3] != ["sh", "-c", "true"]:
            self.err = ("%s: not emulated\n" % argv[0]).encode()
            self.code = 127

    def make(self, root, directory, names):
        for name in names:
            try:
                os.makedirs(host_path(root, os.path.join(directory, name)), exist_ok=True)
            except OSError as error:
                self.err += ("mkdir: cannot create directory '%s': %s\n"
                             % (name, error.strerror)).encode()
                self.code = 1


class Sandbox:
    """Where all VMs have their directories."""

    def __init__(self, state_dir):
        self.state_dir = state_dir
        self.mode = "unshare" if namespaces_work() else "emulated"
        self.lock = threading.Lock()
        self.running = {}           # vm id -> set of processes

    def root_of(self, vm):
        with self.lock:
            if vm.root is None:
                vm.root = os.path.join(self.state_dir, vm.id)
                make_root(vm.root)
            return vm.root

    def discard(self, vm):
        """Ends what runs in a VM and removes its files."""
        with self.lock:
            running = list(self.running.pop(vm.id, ()))
        for process in running:
            if process.poll() is None:
                process.kill()
        if vm.root is not None:
            shutil.rmtree(vm.root, ignore_errors=True)

    def start(self, vm, directory, env, argv):
        root = self.root_of(vm)
        process = subprocess.Popen(command_line(root, directory, env, argv),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        with self.lock:
            self.running.setdefault(vm.id, set()).add(process)
        return process

    def finished(self, vm, process):
        process.stdout.close()
        process.stderr.close()
        with self.lock:
            self.running.get(vm.id, set()).discard(process)

    def run(self, vm, directory, env, argv, stdin, emit):
        """Runs a command; emit(1|2, bytes) gets its output.  Returns the exit code."""
        root = self.root_of(vm)
        if argv[:2] == ["mkdir", "-p"] and all(a.startswith("/") for a in argv[2:]):
            # what mkdir would do, without the cost of a process
            done = Emulated(root, "/", argv, b"")
        elif self.mode == "emulated":
            done = Emulated(root, directory, argv, stdin)
        else:
            return self.run_process(vm, directory, env, argv, stdin, emit)
        for number, data in ((1, done.out), (2, done.err)):
            if data:
                emit(number, data)
        return done.code

    def run_process(self, vm, directory, env, argv, stdin, emit):
        process = self.start(vm, directory, env, argv)
        threads = [threading.Thread(target=self.feed, args=(process, stdin), daemon=True),
                   threading.Thread(target=pump, args=(process.stderr, 2, emit), daemon=True)]
        for thread in threads:
            thread.start()
        pump(process.stdout, 1, emit)
        threads[1].join()
        code = process.wait()
        self.finished(vm, process)
        return code if code >= 0 else 128 - code

    @staticmethod
    def feed(process, stdin):
        try:
            process.stdin.write(stdin)
            process.stdin.close()
        except OSError:
            pass

    def stop(self):
        for vm_id in list(self.running):
            for process in list(self.running.get(vm_id, ())):
                if process.poll() is None:
                    process.kill()
        shutil.rmtree(self.state_dir, ignore_errors=True)


def pump(stream, number, emit):
    total = 0
    while True:
        data = stream.read1(65536)
        if not data:
            return
        total += len(data)
        if total <= MAX_OUTPUT:
            emit(number, data)
