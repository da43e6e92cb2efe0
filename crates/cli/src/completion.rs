//! `sidestep completion SHELL`: prints a completion script, generated from the command tree. For
//! bash it also completes the arguments of routes, rules, policies, VLAN entries, the domain and
//! filters, which `sidestep complete-words` prints.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use sidestep_model::behavior::text;
use sidestep_model::grammar::{domain, ether, path, policy, protection, reflector, rule, vlan};

use crate::{Cli, Outcome, route_get, trace};

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shell to complete for
    pub shell: Shell,
}

/// Arguments of `complete-words`.
#[derive(Debug, clap::Args)]
pub struct WordArgs {
    /// Command whose arguments are completed
    #[arg(long, value_enum, default_value = "route")]
    pub of: Of,
    /// Words before the one to complete
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Commands whose arguments are not in the command tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Of {
    /// Routes.
    Route,
    /// Addresses of `route get`.
    RouteGet,
    /// Rules.
    Rule,
    /// Policies.
    Policy,
    /// Ether devices.
    Ether,
    /// Entries of VLAN tables.
    Vlan,
    /// Entries of the SR domain.
    Domain,
    /// Protected next hops.
    Protect,
    /// Reflectors of S-BFD.
    Reflector,
    /// Paths that are probed.
    Path,
    /// Filters of `trace`.
    Trace,
}

/// Bash function that completes these arguments, and calls the generated function for all others.
const BASH_WORDS: &str = r#"
_sidestep_words() {
    local of=${COMP_WORDS[1]} first=3
    # The first word of a route is its prefix.
    [[ $of == route ]] && first=4
    if [[ $of =~ ^(route|rule|policy|ether|vlan|domain|protect|reflector|path)$ && ${COMP_WORDS[2]} =~ ^(add|replace|set|del)$ && $COMP_CWORD -ge $first ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(sidestep complete-words --of "$of" -- "${COMP_WORDS[@]:3:COMP_CWORD-3}")" -- "$2")
    elif [[ $of == route && ${COMP_WORDS[2]} == get && $COMP_CWORD -ge 4 && $2 != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(sidestep complete-words --of route-get -- "${COMP_WORDS[@]:3:COMP_CWORD-3}")" -- "$2")
    elif [[ ${COMP_WORDS[1]} == trace && $COMP_CWORD -gt 1 && $2 != -* && ! $3 =~ ^--(rate|count|write)$ ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(sidestep complete-words --of trace -- "${COMP_WORDS[@]:2:COMP_CWORD-2}")" -- "$2")
    else
        _sidestep "$@"
    fi
}
complete -F _sidestep_words -o bashdefault -o default sidestep
"#;

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "sidestep", &mut script);
    out.write_all(&script)?;
    if args.shell == Shell::Bash {
        out.write_all(BASH_WORDS.as_bytes())?;
    }
    Ok(())
}

/// Prints the possible next words.
pub fn words(args: &WordArgs, out: &mut dyn Write) -> Outcome {
    let words: Vec<_> = args.words.iter().map(String::as_str).collect();
    let next = match args.of {
        Of::Route => text::completions(&words).join(" "),
        Of::RouteGet => route_get::completions(&words).join(" "),
        Of::Rule => rule::completions(&words).join(" "),
        Of::Policy => policy::completions(&words).join(" "),
        Of::Ether => ether::completions(&words).join(" "),
        Of::Vlan => vlan::completions(&words).join(" "),
        Of::Domain => domain::completions(&words).join(" "),
        Of::Path => path::completions(&words).join(" "),
        Of::Protect => protection::completions(&words).join(" "),
        Of::Reflector => reflector::completions(&words).join(" "),
        Of::Trace => trace::completions(&words).join(" "),
    };
    writeln!(out, "{next}")?;
    Ok(())
}
