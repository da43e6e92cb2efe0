//! The demo: two customers joined by SRv6 over three routers, first with Linux alone, then with Sidestep on the same
//! network and the same configuration. It meets Sidestep only by its command line.

mod frame;
mod ping;
mod product;
mod screen;
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
    /// The whole demo.
    Show {
        /// The network stays, with Sidestep on it.
        keep: bool,
    },
    /// Remove what an earlier demo left.
    Clean,
    /// Say how it is called.
    Help,
}

/// How it is called.
pub const USAGE: &str = "\
usage: ./dev demo [--keep | --clean]
  --keep   leave the network up, with Sidestep running, and say how to enter it
  --clean  remove the network that --keep, or a killed demo, left behind";

impl Request {
    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// An argument is not one of [`USAGE`], or two of them contradict.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, Error> {
        let mut request = None;
        for argument in arguments {
            let asked = match argument.as_str() {
                "--keep" => Self::Show { keep: true },
                "--clean" => Self::Clean,
                "--help" | "-h" => Self::Help,
                _ => return Err(Error::Usage(format!("{argument}: not an option\n{USAGE}"))),
            };
            if request.is_some_and(|before| before != asked) {
                return Err(Error::Usage(format!(
                    "{argument}: only one option\n{USAGE}"
                )));
            }
            request = Some(asked);
        }
        Ok(request.unwrap_or(Self::Show { keep: false }))
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
    let keep = request == Request::Show { keep: true };
    let shown = show(&screen, sidestep, &interrupt, keep);
    // What goes wrong after a signal is not the reason.
    interrupt.check().and(shown)
}

fn show(
    screen: &Screen,
    sidestep: Sidestep,
    interrupt: &Interrupt,
    keep: bool,
) -> Result<(), Error> {
    screen.title("Sidestep: an SRv6 data plane for an unmodified Linux kernel");
    let stage = Stage::new(topology::build(interrupt)?, sidestep);
    let story = Story::new(&stage, screen, interrupt)?;
    let closing = story.tell(keep)?;
    if keep {
        screen.heading("The network stays");
        story.how_to_enter()?;
        stage.keep();
    } else {
        drop(stage);
    }
    screen.line("");
    screen.strong(&closing);
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
        assert_eq!(parse(&[]), Ok(Request::Show { keep: false }));
        assert_eq!(parse(&["--keep"]), Ok(Request::Show { keep: true }));
        assert_eq!(parse(&["--clean"]), Ok(Request::Clean));
        assert!(parse(&["--clean", "--keep"]).is_err());
        let error = parse(&["--fast"]).expect_err("no such option");
        assert!(
            error.starts_with("--fast") && error.contains("--clean"),
            "{error}"
        );
    }
}
