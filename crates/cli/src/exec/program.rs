//! Finds the file of a program, and checks by its ELF headers whether it will load the preload
//! library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, getegid, geteuid};
use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader as _};
use object::{Endianness, ReadCache, ReadRef};

use super::ExecError;

/// Maximum nesting of script interpreters, as in Linux (`exec_binprm`).
const INTERPRETERS: usize = 5;
/// Number of bytes that Linux reads to determine the format of a file (`BINPRM_BUF_SIZE`).
const SCRIPT_LINE: u64 = 256;

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
        match kind(&ReadCache::new(&file)) {
            Kind::Script(interpreter) => path = may_run(Path::new(&interpreter))?,
            Kind::Unknown => return Ok(()),
            found @ Kind::Elf(_) => {
                let ours = File::open("/proc/self/exe")
                    .map_or(Kind::Unknown, |file| kind(&ReadCache::new(file)));
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
        if program.target() != ours.target() {
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
    is_wide: bool,
    is_little: bool,
    /// `e_machine`.
    machine: u16,
    /// `PT_INTERP`.
    linker: Option<OsString>,
    /// Whether the file has a note of Go's linker.
    go: bool,
}

impl Elf {
    /// Returns what must be equal for a library to be loaded: word size, byte order and machine.
    fn target(&self) -> (bool, bool, u16) {
        (self.is_wide, self.is_little, self.machine)
    }
}

/// Determines the format of a file. The content is not trusted: a field that cannot be read makes the
/// format unknown.
pub fn kind<'data>(data: impl ReadRef<'data>) -> Kind {
    let length = data.len().unwrap_or(0).min(SCRIPT_LINE);
    let head = data.read_bytes_at(0, length).unwrap_or_default();
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line).map_or(Kind::Unknown, Kind::Script);
    }
    // EI_CLASS of the ELF identification: 1 for 32 bits, 2 for 64.
    let elf = match head.get(4) {
        Some(1) => elf::<FileHeader32<Endianness>>(data),
        Some(2) => elf::<FileHeader64<Endianness>>(data),
        _ => None,
    };
    elf.map_or(Kind::Unknown, Kind::Elf)
}

fn script(line: &[u8]) -> Option<OsString> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = line
        .split(|byte| matches!(byte, b' ' | b'\t' | b'\0'))
        .find(|word| !word.is_empty())?;
    Some(OsString::from_vec(word.to_vec()))
}

/// Reads the program headers of an ELF file.
fn elf<'data, H: FileHeader<Endian = Endianness>>(data: impl ReadRef<'data>) -> Option<Elf> {
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut elf = Elf {
        is_wide: header.is_class_64(),
        is_little: header.is_little_endian(),
        machine: header.e_machine(endian).0,
        linker: None,
        go: false,
    };
    for segment in header.program_headers(endian, data).ok()? {
        if let Ok(Some(path)) = segment.interpreter(endian, data) {
            elf.linker = Some(OsString::from_vec(path.to_vec()));
        }
        if let Ok(Some(mut notes)) = segment.notes(endian, data) {
            while let Ok(Some(note)) = notes.next() {
                elf.go |= note.name() == b"Go";
            }
        }
    }
    Some(elf)
}
