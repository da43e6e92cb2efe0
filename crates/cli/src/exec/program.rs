//! Finds the file of a program, and checks by its ELF headers whether it will load the preload
//! library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, getegid, geteuid};

use super::ExecError;

/// Maximum nesting of script interpreters, as in Linux (`exec_binprm`).
const INTERPRETERS: usize = 5;
/// Number of bytes that Linux reads to determine the format of a file (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE: usize = 256;
/// LIMIT: program headers and notes that are looked at; no linker writes as many.
const HEADERS_MAX: usize = 4096;

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

/// Reason why a program's sockets would not get the segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The program has no dynamic linker.
    Static,
    /// The program was compiled by Go.
    Go,
    /// The program is for another processor or word size.
    Machine,
    /// The dynamic linker differs.
    Linker {
        /// Dynamic linker of the program.
        its: String,
        /// Dynamic linker of this process.
        ours: String,
    },
    /// The program runs with other privileges than its caller.
    Privileged,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("statically linked, so it cannot load the library that adds the segments"),
            Self::Go => f.write_str("a Go program, which bypasses the C library, so a library cannot add the segments"),
            Self::Machine => f.write_str("for another processor or word size, so it cannot load the library of this sidestep"),
            Self::Linker { its, ours } => write!(f, "linked for another C library ({its}) than this sidestep ({ours}), so it cannot load its library"),
            Self::Privileged => f.write_str("set-user-ID, set-group-ID or has file capabilities, so it loads no library of its caller"),
        }
    }
}

/// Returns the file that `execvp` would run.
pub(super) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ExecError> {
    if name.as_bytes().contains(&b'/') {
        return may_run(Path::new(name));
    }
    // The default of execvp(3) without PATH.
    let path = path.map_or_else(|| OsString::from("/bin:/usr/bin"), OsStr::to_owned);
    let mut denied = None;
    for folder in env::split_paths(&path) {
        // An empty entry is the current directory.
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &folder
        };
        match may_run(&folder.join(name)) {
            Err(ExecError::NotFound(_)) => {}
            Err(error) => denied = denied.or(Some(error)),
            found => return found,
        }
    }
    Err(denied.unwrap_or_else(|| ExecError::NotFound(name.into())))
}

fn may_run(path: &Path) -> Result<PathBuf, ExecError> {
    let failed = |source: io::Error| match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR) => ExecError::NotFound(path.to_owned()),
        _ => ExecError::CannotRun {
            path: path.to_owned(),
            source,
        },
    };
    let data = fs::metadata(path).map_err(failed)?;
    if !data.is_file() {
        return Err(failed(Errno::EACCES.into()));
    }
    access(path, AccessFlags::X_OK).map_err(|errno| failed(errno.into()))?;
    Ok(path.to_owned())
}

/// Checks that a program, or its interpreter, will load the library. Files of unknown format and
/// files that cannot be read pass the check; the kernel decides about them.
pub(super) fn check(path: &Path) -> Result<(), ExecError> {
    let mut path = path.to_owned();
    for _ in 0..INTERPRETERS {
        let Ok(file) = File::open(&path) else {
            return Ok(());
        };
        match kind(&file) {
            Kind::Script(interpreter) => path = may_run(Path::new(&interpreter))?,
            Kind::Unknown => return Ok(()),
            found @ Kind::Elf(_) => {
                let ours = File::open("/proc/self/exe").map_or(Kind::Unknown, |file| kind(&file));
                return match unfit(&found, &ours, is_privileged(&path, &file)) {
                    Some(why) => Err(ExecError::Unfit { path, why }),
                    None => Ok(()),
                };
            }
        }
    }
    Ok(())
}

fn unfit(program: &Kind, ours: &Kind, privileged: bool) -> Option<Unfit> {
    let Kind::Elf(program) = program else {
        return None;
    };
    if let Kind::Elf(ours) = ours {
        if program.machine != ours.machine {
            return Some(Unfit::Machine);
        }
        if program.go {
            return Some(Unfit::Go);
        }
        let (Some(its), Some(our)) = (&program.linker, &ours.linker) else {
            return program.linker.is_none().then_some(Unfit::Static);
        };
        // The same linker may be installed in several places.
        let name = |path: &OsStr| Path::new(path).file_name().map(OsStr::to_owned);
        if name(its) != name(our) {
            return Some(Unfit::Linker {
                its: super::shown(its),
                ours: super::shown(our),
            });
        }
    }
    privileged.then_some(Unfit::Privileged)
}

/// Returns whether the file alone makes the kernel set `AT_SECURE`.
fn is_privileged(path: &Path, file: &File) -> bool {
    let Ok(data) = file.metadata() else {
        return false;
    };
    let (mode, user, group) = (data.mode(), geteuid().as_raw(), getegid().as_raw());
    let of_user = mode & S_ISUID != 0 && data.uid() != user;
    // Without the execute bit, set-group-ID has another meaning.
    let of_group = mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && data.gid() != group;
    of_user || of_group || (user != 0 && has_capabilities(path))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both names are NUL-terminated; with a size of 0 the kernel returns only the length.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    length > 0
}

/// Format of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ELF file.
    Elf(Elf),
    /// A script, with the interpreter in its first line.
    Script(OsString),
    /// Another format.
    Unknown,
}

/// Properties of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// Class, data encoding and machine.
    machine: [u8; 4],
    /// `PT_INTERP`.
    linker: Option<OsString>,
    /// Whether the file has a note of Go's linker.
    go: bool,
}

/// Looks at a file. Nothing in it is trusted: what cannot be read as it says is not there.
pub fn kind(file: &impl FileExt) -> Kind {
    let head = read(file, 0, SCRIPT_LINE);
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line).map_or(Kind::Unknown, Kind::Script);
    }
    elf(file, &head).map_or(Kind::Unknown, Kind::Elf)
}

fn script(line: &[u8]) -> Option<OsString> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = line
        .split(|byte| matches!(byte, b' ' | b'\t' | b'\0'))
        .find(|word| !word.is_empty())?;
    Some(OsString::from_vec(word.to_vec()))
}

/// Reads at most this number of bytes from there on; fewer at the end of the file or on an error.
fn read(file: &impl FileExt, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], at.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    bytes.truncate(filled);
    bytes
}

/// Fields of a header, in the file's own byte order.
struct Fields<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Fields<'_> {
    /// Reads a number of this many bytes.
    fn number(&self, at: usize, size: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(size)?)?;
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.little {
            bytes.iter().rev().fold(0, add)
        } else {
            bytes.iter().fold(0, add)
        })
    }
}

// System V ABI, chapters 4 and 5: offsets in 64-bit and 32-bit headers.
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;

fn elf(file: &impl FileExt, head: &[u8]) -> Option<Elf> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let (class, data) = (*head.get(4)?, *head.get(5)?);
    let (wide, little) = (class == 2, data == 1);
    let header = Fields {
        bytes: head,
        little,
    };
    let machine = header.number(18, 2)?;
    let (offset, size, count) = if wide {
        (
            header.number(32, 8)?,
            header.number(54, 2)?,
            header.number(56, 2)?,
        )
    } else {
        (
            header.number(28, 4)?,
            header.number(42, 2)?,
            header.number(44, 2)?,
        )
    };
    let (size, count) = (size as usize, (count as usize).min(HEADERS_MAX));
    let table = read(file, offset, size.saturating_mul(count));
    let mut found = Elf {
        machine: [class, data, (machine >> 8) as u8, machine as u8],
        linker: None,
        go: false,
    };
    for bytes in table.chunks_exact(size.max(1)) {
        let field = Fields { bytes, little };
        let (Some(kind), Some(at), Some(length)) = (
            field.number(0, 4),
            if wide {
                field.number(8, 8)
            } else {
                field.number(4, 4)
            },
            if wide {
                field.number(32, 8)
            } else {
                field.number(16, 4)
            },
        ) else {
            break;
        };
        let length = usize::try_from(length)
            .unwrap_or(HEADERS_MAX)
            .min(HEADERS_MAX);
        match kind {
            PT_INTERP => {
                let mut path = read(file, at, length);
                path.truncate(
                    path.iter()
                        .position(|byte| *byte == 0)
                        .unwrap_or(path.len()),
                );
                found.linker = Some(OsString::from_vec(path));
            }
            PT_NOTE => found.go |= has_note_of_go(&read(file, at, length), little),
            _ => {}
        }
    }
    Some(found)
}

/// A note whose name is Go's: its linker writes the build id so.
fn has_note_of_go(mut notes: &[u8], little: bool) -> bool {
    loop {
        let field = Fields {
            bytes: notes,
            little,
        };
        let (Some(name), Some(content)) = (field.number(0, 4), field.number(4, 4)) else {
            return false;
        };
        if notes
            .get(12..)
            .is_some_and(|rest| name == 4 && rest.starts_with(b"Go\0\0"))
        {
            return true;
        }
        let padded = |size: u64| size.next_multiple_of(4) as usize;
        match notes.get(12 + padded(name) + padded(content)..) {
            Some(rest) => notes = rest,
            None => return false,
        }
    }
}
