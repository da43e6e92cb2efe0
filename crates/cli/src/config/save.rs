//! `sidestep config save`: writes the running configuration to a node file.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use sidestep_control::api::{self, Request};
use sidestep_control::report::{Config, Difference, Status};
use sidestep_model::config::entries::{add_secret, hmac_key, yaml};
use sidestep_model::config::{self, SecretSource};

use super::with_secrets;
use crate::{Outcome, node_file};

/// Permissions of a new file, which may get secrets later.
const MODE: u32 = 0o640;

/// Arguments of `config save`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Save over a file with comments
    #[arg(long)]
    pub force: bool,
    /// Node file (YAML), or `-` for standard output [default: the file of `sidestep run --config`]
    pub file: Option<PathBuf>,
}

/// Result of a step.
type Step<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Runs the command.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let status: Status = api::ask(Request::ShowStatus)?;
    if status.confirm_within.is_some() {
        return Err("the last `config apply` waits for `sidestep config confirm`".into());
    }
    let running = status.config.as_ref().map(PathBuf::from);
    if args.file.as_deref() == Some(Path::new(node_file::STDIN)) {
        let path = std::env::current_dir()?.join("node.yaml");
        write!(out, "{}", text(&path, running.as_deref())?)?;
        return Ok(());
    }
    let path = args.file.as_ref().or(running.as_ref()).ok_or(
        "the daemon was started without `--config FILE`: name the file, as in `sidestep config \
         save FILE`",
    )?;
    // A symbolic link stays one.
    let path = fs::canonicalize(path).or_else(|_| std::path::absolute(path))?;
    let before = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(in_file(&path, &error)),
    };
    let text = text(&path, running.as_deref())?;
    check(&path, &text)?;
    match before {
        Some(before) if before == text => {
            writeln!(out, "{}: has this configuration already", path.display())?;
        }
        Some(before) if !args.force && has_comments(&before) => {
            return Err(in_file(
                &path,
                &"the file has comments, which a save removes; `--force` saves, and keeps the \
                  previous file",
            ));
        }
        before => {
            let kept = replace(&path, &text).map_err(|error| in_file(&path, &error))?;
            write!(out, "{}: saved", path.display())?;
            if before.is_some() {
                write!(out, "; the previous file is {}", kept.display())?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn in_file(path: &Path, why: &dyn std::fmt::Display) -> Box<dyn Error + Send + Sync> {
    format!("{}: {why}", path.display()).into()
}

/// The running configuration as a node file for this path. The daemon discloses no secret of an
/// HMAC key: the file refers to it as the previous file does, or the file of the daemon.
fn text(path: &Path, running: Option<&Path>) -> Step<String> {
    let mut entries: Config = api::ask(Request::ShowConfig)?;
    if entries.iter().any(|entry| hmac_key(entry).is_some()) {
        let sources: Vec<_> = [Some(path), running]
            .into_iter()
            .flatten()
            .filter(|source| source.exists())
            .map(|source| Ok((source, node_file::read_text(source)?.1)))
            .collect::<Step<_>>()?;
        for entry in &mut entries {
            let Some((id, algorithm)) = hmac_key(entry) else {
                continue;
            };
            let mut known = sources.iter();
            let known = known.find_map(|(of, file)| Some((of, file.secret_source(id, algorithm)?)));
            match known {
                Some((of, SecretSource::File(name))) => {
                    let name = relative(name, of, path)?;
                    add_secret(entry, SecretSource::File(&name));
                }
                Some((_, source)) => add_secret(entry, source),
                None => {
                    let name = algorithm.name();
                    let why = format!(
                        "HMAC key {id} has no secret in the file; add it under `hmac`: `{id}: \
                         {{algorithm: {name}, secret_file: FILE}}`"
                    );
                    return Err(in_file(path, &why));
                }
            }
        }
    }
    Ok(yaml(&entries))
}

/// Returns the name of a secret's file, which a node file has, for another node file.
fn relative(name: &Path, of: &Path, path: &Path) -> Step<PathBuf> {
    let of = fs::canonicalize(of)?;
    match (of.parent(), path.parent()) {
        (Some(from), Some(to)) if from != to => Ok(from.join(name)),
        _ => Ok(name.to_owned()),
    }
}

/// Checks that the daemon reads the text as the running configuration, with the same secrets.
fn check(path: &Path, text: &str) -> Outcome {
    let mut file = config::File::parse(text)?;
    node_file::read_secrets(&mut file, path)?;
    let config = with_secrets(text.to_owned(), &file);
    let difference: Difference = api::ask(Request::DiffConfig { config })?;
    if difference.is_empty() {
        return Ok(());
    }
    let lines = difference.lines().join("; ");
    let why = format!("the saved file would differ from the running configuration: {lines}");
    Err(in_file(path, &why))
}

/// Whether a line has a comment. A `#` inside quotes counts, too.
fn has_comments(text: &str) -> bool {
    text.lines()
        .any(|line| line.starts_with('#') || line.contains(" #") || line.contains("\t#"))
}

/// Replaces a file at once, with the same mode and owner. The previous one keeps the name that is
/// returned.
fn replace(path: &Path, text: &str) -> io::Result<PathBuf> {
    let beside = |ending: &str| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        path.with_file_name(name)
    };
    let (new, old, kept) = (beside(".new"), beside(".old"), beside(".bak"));
    let result = write(&new, text, fs::metadata(path).ok().as_ref()).and_then(|()| {
        if path.exists() {
            // A link and two renames: each name always has a whole file.
            let _ = fs::remove_file(&old);
            fs::hard_link(path, &old)?;
            fs::rename(&old, &kept)?;
        }
        fs::rename(&new, path)?;
        path.parent()
            .map_or(Ok(()), |it| File::open(it)?.sync_all())
    });
    if result.is_err() {
        let _ = (fs::remove_file(&new), fs::remove_file(&old));
    }
    result.map(|()| kept)
}

/// Writes a new file to the disk.
fn write(path: &Path, text: &str, like: Option<&fs::Metadata>) -> io::Result<()> {
    // A save that was interrupted may have left it.
    let _ = fs::remove_file(path);
    let mut open = OpenOptions::new();
    let mut file = open.write(true).create_new(true).mode(0o600).open(path)?;
    match like {
        Some(like) => {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
            file.set_permissions(fs::Permissions::from_mode(like.mode() & 0o7777))?;
        }
        None => file.set_permissions(fs::Permissions::from_mode(MODE))?,
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_the_previous_one_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("node.yaml");
        let mode = |path: &Path| fs::metadata(path).expect("a file").mode() & 0o7777;
        let read = |path: &Path| fs::read_to_string(path).expect("a file");
        replace(&path, "one").expect("saved");
        assert_eq!((read(&path).as_str(), mode(&path)), ("one", MODE));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).expect("set");
        for (text, before) in [("two", "one"), ("three", "two")] {
            let kept = replace(&path, text).expect("saved");
            assert_eq!((read(&path).as_str(), mode(&path)), (text, 0o604));
            assert_eq!((read(&kept).as_str(), mode(&kept)), (before, 0o604));
        }
        let names = fs::read_dir(folder.path()).expect("the folder").count();
        assert_eq!(names, 2, "nothing else stays");
    }

    #[test]
    fn comments_are_found_on_their_own_line_and_behind_an_entry() {
        for (text, has) in [
            ("# ports\nports: [eth0]\n", true),
            ("ports: [eth0] # the core\n", true),
            ("ports:\n- eth0\t# the core\n", true),
            ("ports: [\"eth#0\"]\n", false),
        ] {
            assert_eq!(has_comments(text), has, "{text}");
        }
    }
}
