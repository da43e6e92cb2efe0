//! `sidestep config save`, and a daemon without ports.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use sidestep_control::api::Request;
use sidestep_control::report::{self, Severity};
use sidestep_testkit::Namespace;

use crate::support::node_file::NodeFile;
use crate::support::{Star, begin, output, printed, report, text_of};

/// The packaged node file.
const PACKAGED: &str = include_str!("../../../../packaging/node.yaml");

/// Runs a command that fails. Returns its error.
fn refused(router: &Namespace, words: &[&str]) -> String {
    let output = output(router, words);
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    text_of(&output)
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("the file")
}

fn secret(path: &Path) {
    fs::write(path, "hush\n").expect("written");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("set");
}

#[test]
fn a_saved_configuration_starts_the_next_daemon_and_keeps_mode_owner_and_the_previous_file() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livesave");
    let router = star.router();
    let before = "# The core.\nports: [eth0]\nmode: tc\n";
    let file = NodeFile::new(before);
    let path = file.text();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
    chown(&path, Some(7), Some(8)).expect("set");
    let daemon = star.run(&["--config", &path]);
    printed(router, &["port", "add", "eth1"]);
    printed(router, &["domain", "add", "sid-block", "fc00:2::/32"]);

    let why = refused(router, &["config", "save"]);
    assert!(why.contains("`--force` saves"), "{why}");
    assert_eq!(read(&path), before);
    let kept = format!("{path}.bak");
    assert_eq!(
        printed(router, &["config", "save", "--force"]),
        format!("{path}: saved; the previous file is {kept}\n")
    );
    assert_eq!(read(&kept), before);
    let shown = printed(router, &["config", "show"]);
    assert_eq!(read(&path), shown);
    let found = fs::metadata(&path).expect("the file");
    assert_eq!(
        (found.mode() & 0o7777, found.uid(), found.gid()),
        (0o640, 7, 8)
    );
    // The second save has nothing to write.
    assert_eq!(
        printed(router, &["config", "save"]),
        format!("{path}: has this configuration already\n")
    );
    assert_eq!(read(&kept), before);

    drop(daemon);
    let _daemon = star.run(&["--config", &path]);
    assert_eq!(printed(router, &["config", "show"]), shown);
    // A configuration that may be rolled back is not saved.
    let other = NodeFile::new(&shown.replace("fc00:2::", "fc00:3::"));
    printed(
        router,
        &["config", "apply", "--confirm", "60", &other.text()],
    );
    let why = refused(router, &["config", "save"]);
    assert!(why.contains("waits for `sidestep config confirm`"), "{why}");
    assert_eq!(read(&path), shown);
}

#[test]
fn a_saved_file_names_the_files_of_secrets() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livesavekey");
    let router = star.router();
    let file = NodeFile::new("");
    let folder = file.path().parent().expect("a folder").to_owned();
    secret(&folder.join("key7"));
    file.write(
        "ports: [eth0]\nhmac:\n  7: {algorithm: sha256, secret_file: key7}\n  \
         8: {algorithm: sha1, secret: \"a \\\"b\\\"\"}\n",
    );
    let path = file.text();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
    let _daemon = star.run(&["--mode", "tc", "--config", &path]);
    printed(router, &["port", "add", "eth1"]);
    printed(router, &["config", "save"]);
    let keys = "hmac:\n  7: {algorithm: sha256, secret_file: \"key7\"}\n  \
        8: {algorithm: sha1, secret: \"a \\\"b\\\"\"}\n";
    assert!(read(&path).ends_with(keys), "{}", read(&path));
    // In another folder, the name is absolute.
    let other = NodeFile::new("");
    let copy = other.path().with_file_name("copy.yaml");
    let copy = copy.to_str().expect("UTF-8");
    printed(router, &["config", "save", copy]);
    let absolute = format!("secret_file: \"{}\"", folder.join("key7").display());
    assert!(read(copy).contains(&absolute), "{}", read(copy));
    assert_eq!(fs::metadata(copy).expect("a file").mode() & 0o7777, 0o640);
    assert_eq!(printed(router, &["config", "diff", copy]), "");

    // A key that was set by command has its secret in no file, or another one.
    let saved = read(&path);
    let key = folder.join("key9");
    secret(&key);
    let key = key.to_str().expect("UTF-8");
    printed(
        router,
        &["hmac", "set", "9", "sha256", "--secret-file", key],
    );
    let why = refused(router, &["config", "save"]);
    assert!(
        why.contains("HMAC key 9 has no secret in the file"),
        "{why}"
    );
    printed(router, &["hmac", "del", "9"]);
    fs::write(key, "other\n").expect("written");
    printed(
        router,
        &["hmac", "set", "7", "sha256", "--secret-file", key],
    );
    let why = refused(router, &["config", "save"]);
    assert!(why.contains("would differ from the running"), "{why}");
    assert_eq!(read(&path), saved);
}

#[test]
fn a_daemon_without_ports_starts_with_the_packaged_file_and_gets_ports_later() {
    let Some(_turn) = begin() else {
        return;
    };
    let star = Star::new("livenoports");
    let router = star.router();
    let file = NodeFile::new(PACKAGED);
    let path = file.text();
    let checked = printed(router, &["config", "check", &path]);
    assert!(
        checked.contains("no ports: `sidestep port add` adds them"),
        "{checked}"
    );
    let daemon = star.run(&["--config", &path]);
    assert!(
        daemon.began.starts_with("forwarding on no port yet"),
        "{}",
        daemon.began
    );
    let status: report::Status = report(router, Request::ShowStatus);
    let notes = status.problems.iter().map(|it| (it.severity, &it.code[..]));
    let notes: Vec<_> = notes.collect();
    assert!(notes.contains(&(Severity::Note, "no_ports")), "{notes:?}");
    let only_notes = notes.iter().all(|(it, _)| *it == Severity::Note);
    assert!(only_notes, "{notes:?}");
    assert_eq!(printed(router, &["config", "show"]), "ports: []\n");
    printed(router, &["config", "reload"]);
    printed(router, &["port", "add", "eth0"]);
    assert_eq!(printed(router, &["config", "show"]), "ports:\n- eth0\n");
    printed(router, &["port", "del", "eth0"]);
    printed(router, &["config", "save", "--force"]);
    assert_eq!(read(&path), "ports: []\n");
    drop(daemon);
    // Without a file, the name of it is needed.
    let _daemon = star.run(&["--mode", "tc", "eth0"]);
    let why = refused(router, &["config", "save"]);
    assert!(why.contains("sidestep config save FILE"), "{why}");
}
