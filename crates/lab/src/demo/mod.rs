//! The demos. They meet Sidestep only by its command line.
//!
//! The first: two customers joined by SRv6 over three routers, first with Linux alone, then with Sidestep on the same
//! network and the same configuration. The other, [`sfc`]: a service chain of two functions that know nothing of SRv6.

mod crossing;
mod frame;
mod ping;
mod product;
mod screen;
mod sfc;
mod stage;
mod story;
mod tcp;
mod throughput;
mod topology;

pub use crate::program::Error;
use crate::program::Interrupt;
use product::Sidestep;
use screen::Screen;
use stage::{Stage, clean};
use story::Story;

/// The lab's name: namespaces are `ss-demo-PID-NODE`.
const NAME: &str = "demo";

/// What is asked of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A whole demo.
    Show {
        /// Which.
        demo: Demo,
        /// The network stays, with Sidestep on it.
        keep: bool,
    },
    /// Remove what an earlier demo left.
    Clean,
    /// Say how it is called.
    Help,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demo {
    /// Three routers, Linux and Sidestep side by side.
    Routers,
    /// A service chain.
    Chain,
}

/// How it is called.
pub const USAGE: &str = "\
usage: ./dev demo [sfc] [--keep | --clean]
  sfc      a service chain: a firewall and a rate limiter that know nothing of SRv6, behind SR proxies
           (without it: three routers, Linux alone and Sidestep side by side)
  --keep   leave the network up, with Sidestep running, and say how to enter it
  --clean  remove the network that --keep, or a killed demo, left behind";

impl Request {
    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// An argument is not one of [`USAGE`], or two of them contradict.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, Error> {
        let (mut demo, mut option) = (None, None);
        for argument in arguments {
            let refused = |why: &str| Error::Usage(format!("{argument}: {why}\n{USAGE}"));
            let before = match argument.as_str() {
                "sfc" => demo.replace(Demo::Chain).is_some(),
                "--keep" | "--clean" | "--help" | "-h" => option
                    .replace(argument.clone())
                    .is_some_and(|it| it != argument),
                _ => return Err(refused("neither a demo nor an option")),
            };
            if before {
                return Err(refused("only one of its kind"));
            }
        }
        let demo = demo.unwrap_or(Demo::Routers);
        Ok(match option.as_deref() {
            Some("--clean") => Self::Clean,
            Some("--keep") => Self::Show { demo, keep: true },
            Some(_) => Self::Help,
            None => Self::Show { demo, keep: false },
        })
    }
}

/// Does what is asked, on standard output. Whatever happens, nothing stays behind unless that is asked.
///
/// # Errors
/// What ended the demo before its end; the network is gone by then.
pub fn run(request: Request) -> Result<(), Error> {
    let screen = Screen::stdout();
    if request == Request::Help {
        screen.line(USAGE);
        return Ok(());
    }
    let interrupt = Interrupt::install()?;
    if let Some(missing) = crate::capability::missing() {
        return Err(Error::Usage(format!(
            "the demo needs root on Linux: {missing}"
        )));
    }
    if request == Request::Clean {
        // Without the program there is nothing of it to stop either.
        let removed = clean(Sidestep::find().ok().as_ref());
        screen.line(&match removed.len() {
            0 => "nothing to remove".to_owned(),
            _ => format!("removed {}", removed.join(", ")),
        });
        return Ok(());
    }
    let sidestep = Sidestep::find()?;
    clean(Some(&sidestep));
    let shown = match request {
        Request::Show { demo, keep } => show(&screen, sidestep, &interrupt, demo, keep),
        Request::Clean | Request::Help => Ok(()),
    };
    // What goes wrong after a signal is not the reason.
    interrupt.check().and(shown)
}

fn show(
    screen: &Screen,
    sidestep: Sidestep,
    interrupt: &Interrupt,
    demo: Demo,
    keep: bool,
) -> Result<(), Error> {
    screen.title("Sidestep: an SRv6 data plane for an unmodified Linux kernel");
    let lab = match demo {
        Demo::Routers => topology::build(interrupt)?,
        Demo::Chain => sfc::topology::build(interrupt)?,
    };
    let stage = Stage::new(lab, sidestep);
    let closing = match demo {
        Demo::Routers => Story::new(&stage, screen, interrupt)?.tell(keep)?,
        Demo::Chain => sfc::Story::new(&stage, screen, interrupt)?.tell()?,
    };
    if keep {
        screen.heading("The network stays");
        how_to_enter(&stage, screen, demo)?;
        stage.keep();
    } else {
        drop(stage);
    }
    screen.line("");
    screen.strong(&closing);
    Ok(())
}

/// How to look at the network from outside.
fn how_to_enter(stage: &Stage, screen: &Screen, demo: Demo) -> Result<(), Error> {
    let (lab, sidestep) = (stage.lab()?, stage.sidestep().path().display());
    let (router, words, to) = match demo {
        Demo::Routers => ("pe1", "show counters", topology::B6),
        Demo::Chain => ("nfv1", "route show -s", sfc::topology::B6),
    };
    for (node, command) in [
        ("a", format!("ping {to}")),
        (router, format!("{sidestep} {words}")),
        (router, "bash".to_owned()),
    ] {
        let name = lab.namespace(node)?.name();
        screen.line(&format!("  ip netns exec {name} {command}"));
    }
    screen.note("`./dev demo --clean` removes it; so does the next `./dev demo`.");
    Ok(())
}

/// The line that tells why a demo ended early.
pub fn tell_failure(error: &Error) {
    let screen = Screen::stdout();
    screen.line("");
    screen.bad(&match error {
        Error::Interrupted => "interrupted; the network has been removed".to_owned(),
        Error::Usage(message) => message.clone(),
        error => format!("the demo failed: {}", shortened(&error.to_string())),
    });
}

/// The first lines of a message: a verifier's has thousands.
fn shortened(message: &str) -> String {
    let lines: Vec<&str> = message.lines().collect();
    match lines.len().checked_sub(MESSAGE_LINES) {
        None | Some(0) => message.to_owned(),
        Some(more) => format!("{}\n({more} more lines)", lines[..MESSAGE_LINES].join("\n")),
    }
}

const MESSAGE_LINES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Request, String> {
        Request::parse(words.iter().map(|word| (*word).to_owned()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_long_message_is_cut_and_says_so() {
        assert_eq!(shortened("one\ntwo"), "one\ntwo");
        let long = shortened(&"line\n".repeat(MESSAGE_LINES + 3));
        assert!(long.ends_with("line\n(3 more lines)"), "{long}");
    }

    #[test]
    fn the_options_are_read_and_others_are_refused_with_those_there_are() {
        let show = |demo, keep| Ok(Request::Show { demo, keep });
        assert_eq!(parse(&[]), show(Demo::Routers, false));
        assert_eq!(parse(&["--keep"]), show(Demo::Routers, true));
        assert_eq!(parse(&["sfc"]), show(Demo::Chain, false));
        assert_eq!(parse(&["--keep", "sfc"]), show(Demo::Chain, true));
        assert_eq!(parse(&["--clean"]), Ok(Request::Clean));
        assert!(parse(&["--clean", "--keep"]).is_err());
        assert!(parse(&["sfc", "sfc"]).is_err());
        let error = parse(&["--fast"]).expect_err("no such option");
        assert!(
            error.starts_with("--fast") && error.contains("--clean"),
            "{error}"
        );
    }
}
