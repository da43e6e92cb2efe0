//! `sidestep exec` without a network: started programs, their environment, and exit status.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

use nix::unistd::geteuid;
use sidestep_testkit::capability::skip;

const PYTHON: &str = "/usr/bin/python3";
const SEGMENTS: [&str; 2] = ["--segs", "fc00:1::e,fc00:2::e"];

fn exec(words: &[&str]) -> Command {
    let mut command = Command::new(crate::common::program());
    command.arg("exec").args(words);
    command
}

fn output(words: &[&str]) -> Output {
    exec(words).output().expect("it starts")
}

fn run(program: &[&str]) -> Output {
    output(&[&SEGMENTS[..], &["--"], program].concat())
}

/// Returns exit code, standard output and standard error.
fn finished(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn python(program: &str) -> String {
    let (code, out, err) = finished(&run(&[PYTHON, "-c", program]));
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    out
}

/// Writes a file that everybody may execute.
fn program(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a file");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("its mode");
}

#[test]
fn a_program_keeps_its_arguments_its_streams_its_name_and_its_end() {
    let (code, out, err) = finished(&run(&[
        "sh",
        "-c",
        "echo \"$0 $1\"; echo errors >&2; exit 7",
        "name",
        "--segs",
    ]));
    assert_eq!((code, &*out, &*err), (Some(7), "name --segs\n", "errors\n"));
    // A signal ends the program as without `sidestep exec`, because there is no process in between.
    let killed = run(&["sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.status.signal(), Some(15));
    let (code, out, _) = finished(
        &exec(&[&SEGMENTS[..], &["cat"]].concat())
            .output()
            .expect("it starts"),
    );
    assert_eq!((code, &*out), (Some(0), ""));
    // An existing preload list is kept, after the library.
    let mut others = exec(&[&SEGMENTS[..], &["--", "sh", "-c", "echo $LD_PRELOAD"]].concat());
    others.env("LD_PRELOAD", "libdl.so.2");
    let (_, out, err) = finished(&others.output().expect("it starts"));
    assert!(
        out.starts_with("/proc/") && out.ends_with(":libdl.so.2\n"),
        "{out}"
    );
    assert_eq!(err, "");
}

#[test]
fn what_cannot_be_started_is_told_with_the_exit_codes_of_a_shell() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("no-program"), "text").expect("a file");
    program(&path("of-nothing"), b"#!/nonexistent/interpreter\n");
    for (name, code, reason) in [
        ("missing", 127, "no such program"),
        ("no-program/below", 127, "no such program"),
        ("no-program", 126, "Permission denied (os error 13)"),
        (".", 126, "Permission denied (os error 13)"),
    ] {
        let path = path(name).display().to_string();
        assert_eq!(
            finished(&run(&[&path])),
            (
                Some(code),
                String::new(),
                format!("sidestep: {path}: {reason}\n")
            ),
            "{name}"
        );
    }
    let interpreter = "sidestep: /nonexistent/interpreter: no such program\n";
    let of_nothing = path("of-nothing").display().to_string();
    assert_eq!(
        finished(&run(&[&of_nothing])),
        (Some(127), String::new(), interpreter.into())
    );
    // As in a shell, a file without a format that the kernel knows is a shell script.
    program(&path("of-a-shell"), b"exit 5\n");
    let of_a_shell = path("of-a-shell").display().to_string();
    assert_eq!(run(&[&of_a_shell]).status.code(), Some(5));
    // Search in PATH: the program is missing; it is not executable; a later folder has an
    // executable one.
    let by_path = |name: &str, path: &str| {
        finished(
            &exec(&[&SEGMENTS[..], &["--", name]].concat())
                .env("PATH", path)
                .output()
                .expect("it starts"),
        )
    };
    let here = folder.path().display().to_string();
    assert_eq!(
        by_path("true", &here),
        (
            Some(127),
            String::new(),
            "sidestep: true: no such program\n".into()
        )
    );
    let denied = format!("sidestep: {here}/no-program: Permission denied (os error 13)\n");
    assert_eq!(
        by_path("no-program", &here),
        (Some(126), String::new(), denied)
    );
    fs::write(path("true"), "text").expect("a file");
    assert_eq!(by_path("true", &format!("{here}:/usr/bin")).0, Some(0));
}

#[test]
fn a_program_that_would_go_without_the_header_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let own = fs::read(crate::common::program()).expect("this program");
    // Variants of a compiled program: with Go's note, for another machine, and with another dynamic
    // linker.
    let source = path("program.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
    let go = r#"__attribute__((section(".note.go.buildid"), used, aligned(4)))
        static const struct { int name, size, type; char text[8]; } note = { 4, 4, 4, "Go\0\0id" };"#;
    let with_note = path("go.c");
    fs::write(
        &with_note,
        format!("{go}\nint main(void) {{ return 0; }}\n"),
    )
    .expect("a file");
    let compile = |name: &str, source: &Path, flags: &[&str]| {
        let done = Command::new("cc")
            .arg("-o")
            .arg(path(name))
            .arg(source)
            .args(flags)
            .status();
        assert!(done.expect("a C compiler").success(), "{name}");
    };
    compile("static", &source, &["-static"]);
    compile("static-pie", &source, &["-static-pie"]);
    compile("go", &with_note, &[]);
    compile(
        "musl",
        &source,
        &["-Wl,--dynamic-linker=/lib/ld-musl-of-no-machine.so.1"],
    );
    let mut foreign = own[..own.len().min(4096)].to_vec();
    // e_machine: an unused value.
    foreign[18..20].copy_from_slice(&[0xfe, 0xfe]);
    program(&path("foreign"), &foreign);
    fs::write(
        path("script"),
        format!("#! {} -x\n", path("static").display()),
    )
    .expect("a file");
    fs::set_permissions(path("script"), Permissions::from_mode(0o755)).expect("its mode");
    let statically = "statically linked, so it cannot load the library that adds the segments";
    let go = "a Go program, which bypasses the C library, so a library cannot add the segments";
    let machine =
        "for another processor or word size, so it cannot load the library of this sidestep";
    let ours = Command::new("sh")
        .args([
            "-c",
            "basename $(ldd \"$1\" | sed -n 's/^[ \\t]*\\(\\/[^ ]*ld-[^ ]*\\) .*/\\1/p')",
            "sh",
        ])
        .arg(crate::common::program())
        .output();
    let ours = String::from_utf8(ours.expect("sh").stdout).expect("UTF-8");
    for (name, of, reason) in [
        ("static", "static", statically),
        ("static-pie", "static-pie", statically),
        ("script", "static", statically),
        ("go", "go", go),
        ("foreign", "foreign", machine),
    ] {
        let expected = format!("sidestep: {}: {reason}\n", path(of).display());
        let outcome = finished(&run(&[path(name).to_str().expect("UTF-8")]));
        assert_eq!(outcome, (Some(126), String::new(), expected), "{name}");
    }
    let (code, _, err) = finished(&run(&[path("musl").to_str().expect("UTF-8")]));
    assert_eq!(code, Some(126));
    assert!(
        err.contains(
            "linked for another C library (/lib/ld-musl-of-no-machine.so.1) than this sidestep ("
        ) && err.contains(ours.trim()),
        "{err}"
    );
}

#[test]
fn a_program_with_privileges_of_its_own_is_refused() {
    if !geteuid().is_root() {
        skip("needs root to give a file to another user");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("true");
    for (mode, user, code) in [
        (0o4755, 65534, 126),
        (0o4755, 0, 0),
        (0o755, 65534, 0),
        (0o2755, 65534, 126),
    ] {
        fs::copy("/bin/true", &path).expect("a copy");
        chown(&path, Some(user), Some(user)).expect("root may");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        let (found, _, err) = finished(&run(&[path.to_str().expect("UTF-8")]));
        assert_eq!(found, Some(code), "{mode:o} of {user}: {err}");
        assert_eq!(
            err.contains("set-user-ID, set-group-ID or has file capabilities"),
            code == 126,
            "{err}"
        );
        fs::remove_file(&path).expect("removed");
    }
}

#[test]
fn wrong_words_are_refused_before_anything_is_started() {
    let many = vec!["fc00::1"; 127].join(",");
    let prefixes: Vec<&str> = std::iter::repeat_n(["--to", "fc00::/16"], 65)
        .flatten()
        .collect();
    for (words, code, reason) in [
        (
            vec!["--segs", &many, "--", "true"],
            1,
            "sidestep: 127 segments: at most 126",
        ),
        (
            vec!["--segs", &many[..14 * 8 - 1], "--hmac", "1", "--", "true"],
            1,
            "sidestep: 14 segments: at most 13 with an HMAC",
        ),
        (
            vec!["--segs", "ff02::1", "--", "true"],
            1,
            "sidestep: segment ff02::1: not an IPv6 unicast address",
        ),
        (
            [&["--segs", "fc00::1"][..], &prefixes, &["--", "true"]].concat(),
            1,
            "sidestep: --to: 65 prefixes; at most 64",
        ),
        (
            vec!["--segs", "fc00::g", "--", "true"],
            2,
            "invalid value 'fc00::g'",
        ),
        (
            vec!["--segs", "fc00::1", "--hmac", "0", "--", "true"],
            2,
            "invalid value '0'",
        ),
        (
            vec!["--segs", "fc00::1", "--to", "10.0.0.0/8", "--", "true"],
            2,
            "invalid value '10.0.0.0/8'",
        ),
        (vec!["--segs", "fc00::1"], 2, "<PROGRAM>"),
        (vec!["--", "true"], 2, "--segs"),
    ] {
        let (found, out, err) = finished(&output(&words));
        assert_eq!((found, &*out), (Some(code), ""), "{words:?}: {err}");
        assert!(err.contains(reason), "{err}");
    }
}

/// Returns the routing header of a socket in hexadecimal.
const HEADER: &str = "
import errno, os, socket, sys
def udp(): return socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
def header(s): return s.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_RTHDR, 1024).hex()
";
const OURS: &str = "0006040202000000\
    00000000000000000000000000000000\
    fc00000200000000000000000000000e\
    fc00000100000000000000000000000e";

#[test]
fn a_socket_gets_the_header_when_it_is_told_where_to() {
    // These are documentation addresses; a route is not needed.
    let program = format!(
        "{HEADER}
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    s = socket.socket(socket.AF_INET6, kind)
    s.setblocking(False)
    assert header(s) == ''
    s.connect_ex(('2001:db8::1', 9))
    print(header(s))
s = udp()
try: s.sendto(b'', ('2001:db8::1', 9))
except OSError: pass
print(header(s))"
    );
    assert_eq!(python(&program), format!("{OURS}\n{OURS}\n{OURS}\n"));
}

#[test]
fn other_sockets_and_destinations_are_left_alone_and_errors_are_the_calls_own() {
    let program = format!(
        "{HEADER}
# This host, by all its names, and IPv4, also from an IPv6 socket; what arrives is what was sent.
for family, bound, to in [(socket.AF_INET6, '::1', '::1'), (socket.AF_INET6, '::', '::'), (socket.AF_INET6, '::', '::ffff:127.0.0.1'),
        (socket.AF_INET, '127.0.0.1', '127.0.0.1')]:
    l = socket.socket(family, socket.SOCK_STREAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind((bound, 0)); l.listen()
    s = socket.socket(family, socket.SOCK_STREAM); s.connect((to, l.getsockname()[1])); s.sendall(b'x')
    assert l.accept()[0].recv(1) == b'x'
    assert family == socket.AF_INET or header(s) == ''
    r = socket.socket(family, socket.SOCK_DGRAM); r.bind((bound, 0))
    s = socket.socket(family, socket.SOCK_DGRAM); s.sendto(b'y', (to, r.getsockname()[1]))
    assert r.recv(1) == b'y'
    assert family == socket.AF_INET or header(s) == ''
# Not what the header is for.
p, q = socket.socketpair(); p.sendall(b'z'); assert q.recv(1) == b'z'
def fails(wanted, call, *words):
    try: call(*words)
    except OSError as error: assert error.errno == wanted, error
    else: assert False, wanted
s = udp()
fails(errno.EDESTADDRREQ, s.send, b'')
fails(errno.ECONNREFUSED, socket.socket(socket.AF_INET6, socket.SOCK_STREAM).connect, ('::1', 1))
fails(errno.EADDRNOTAVAIL, udp().bind, ('2001:db8::1', 0))
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, words in ('connect', (-1, None, 0)), ('sendto', (-1, None, 0, 0, None, 0)), ('sendmsg', (-1, None, 0)), ('sendmmsg', (-1, None, 0, 0)):
    ctypes.set_errno(0)
    assert getattr(libc, name)(*words) == -1 and ctypes.get_errno() == errno.EBADF, (name, ctypes.get_errno())
# errno stays what it was where a call succeeds.
r = udp(); r.bind(('::1', 0))
name = bytes([10, 0]) + r.getsockname()[1].to_bytes(2, 'big') + bytes(4) + socket.inet_pton(socket.AF_INET6, '::1') + bytes(4)
s = udp()
ctypes.set_errno(77)
assert libc.sendto(s.fileno(), b'x', 1, 0, name, 28) == 1 and ctypes.get_errno() == 77
assert libc.connect(s.fileno(), name, 28) == 0 and ctypes.get_errno() == 77
print('as ever')"
    );
    assert_eq!(python(&program), "as ever\n");
}

#[test]
fn an_environment_that_is_not_ours_ends_the_program_before_it_sends() {
    let program = format!(
        "{HEADER}
import subprocess
env = dict(os.environ, SIDESTEP_EXEC='segs=fc00::1 from=tomorrow')
done = subprocess.run([sys.executable, '-c', 'print(1)'], env=env, capture_output=True, text=True)
print(done.returncode, done.stdout, done.stderr)
# Without it there is nothing to do.
del env['SIDESTEP_EXEC']
done = subprocess.run([sys.executable, '-c', 'print(1)'], env=env, capture_output=True, text=True)
print(done.returncode, done.stdout, done.stderr)"
    );
    let reason = "sidestep exec: invalid value of SIDESTEP_EXEC: segs=fc00::1 from=tomorrow";
    assert_eq!(python(&program), format!("126  {reason}\n\n0 1\n \n"));
}
