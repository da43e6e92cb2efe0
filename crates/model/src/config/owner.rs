//! `owner` at the end of a route line: whether the kernel or Sidestep has the route.

use crate::behavior::check::linux_can_express;
use crate::error::{ConfigError, Place};
use crate::grammar::Words;
use crate::route::{Owner, Route};

/// Takes `owner kernel` or `owner sidestep` from the end of a line.
///
/// # Errors
/// Another owner.
pub(super) fn take(words: &mut Words) -> Result<Option<(Owner, Place)>, ConfigError> {
    let Some(word) = words.take_last("owner") else {
        return Ok(None);
    };
    let owner = match word.text {
        "kernel" => Owner::Kernel,
        "sidestep" => Owner::Sidestep,
        other => {
            let expected = "kernel or sidestep";
            return Err(ConfigError::new(
                word.place,
                "invalid `owner`",
                other,
                expected,
            ));
        }
    };
    Ok(Some((owner, word.place)))
}

/// The owner of a route: the given one, otherwise the kernel if Linux can express the route.
///
/// # Errors
/// The kernel cannot have it.
pub(super) fn of(route: &Route, given: Option<(Owner, Place)>) -> Result<Owner, ConfigError> {
    match (given, linux_can_express(route)) {
        (Some((Owner::Kernel, place)), false) => {
            let problem = "Linux cannot express this route:";
            let expected = "owner sidestep, or no `owner`";
            Err(ConfigError::new(place, problem, "owner kernel", expected))
        }
        (Some((owner, _)), _) => Ok(owner),
        (None, true) => Ok(Owner::Kernel),
        (None, false) => Ok(Owner::Sidestep),
    }
}
