//! The words that only the SR proxies have, in and out.

use super::words::Words;
use crate::behavior::Proxy;
use crate::behavior::attribute::Attribute;
use crate::behavior::check::join;
use crate::behavior::proxy::{INTERVAL, INTERVAL_MAX, INTERVAL_MIN, Liveness, Vocabulary};
use crate::error::ConfigError;

/// Reads what follows `keyword`, the keyword of an attribute that only proxies have.
pub(super) fn parse(
    keyword: &str,
    words: &mut Words,
    proxy: &mut Proxy,
) -> Result<(), ConfigError> {
    match keyword {
        "chain" => proxy.chain = Some(one_of(words, keyword)?),
        "src" => proxy.src = Some(words.address6(keyword)?),
        "nheth" => {
            let expected = "an Ethernet address such as 02:00:00:00:00:01";
            proxy.nheth = Some(words.parsed(keyword, expected, |text| text.parse().ok())?);
        }
        "inner" => proxy.inner = Some(one_of(words, keyword)?),
        "age" => proxy.age = Some(words.number(keyword, 0, u32::MAX)?),
        "flows" => proxy.flows = true,
        "liveness" => {
            let probe = one_of(words, keyword)?;
            let interval = match words.take_if("interval") {
                Some(_) => words.number("interval", INTERVAL_MIN, INTERVAL_MAX)?,
                None => INTERVAL,
            };
            proxy.liveness = Some(Liveness { probe, interval });
        }
        _ => proxy.on_down = Some(one_of(words, keyword)?),
    }
    Ok(())
}

fn one_of<T: Vocabulary>(words: &mut Words, keyword: &str) -> Result<T, ConfigError> {
    let expected = join(T::WORDS.iter().map(|(_, word)| *word), " or ");
    words.parsed(keyword, &expected, T::from_word)
}

/// What stands behind the keyword of an attribute that only proxies have, if anything does.
pub(super) fn value_text(attribute: Attribute, proxy: &Proxy) -> Option<String> {
    match attribute {
        Attribute::Chain => proxy.chain.map(|chain| chain.to_string()),
        Attribute::Src => proxy.src.map(|address| address.to_string()),
        Attribute::Nheth => proxy.nheth.map(|mac| mac.to_string()),
        Attribute::Inner => proxy.inner.map(|inner| inner.to_string()),
        Attribute::Age => proxy.age.map(|age| age.to_string()),
        Attribute::Liveness => proxy
            .liveness
            .map(|Liveness { probe, interval }| format!("{probe} interval {interval}")),
        Attribute::OnDown => proxy.on_down.map(|on_down| on_down.to_string()),
        _ => None,
    }
}
