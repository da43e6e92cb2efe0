//! Parser and printer of policy rules, in the grammar of `ip rule add` and `ip rule show`.

use std::collections::BTreeMap;
use std::fmt::Write;

use ipnet::IpNet;

use super::words::{Once, Words, unknown};
use super::{Context, Names, Style, Word, value};
use crate::behavior::Behavior;
use crate::behavior::check::join;
use crate::behavior::endpoint::BEHAVIORS;
use crate::config;
use crate::error::ConfigError;
use crate::node::{Node, TableId};
use crate::route::{Family, Owner, Rule, RuleAction};

/// The rules of a node, as in [`crate::node::Node::rules`].
pub type Rules = BTreeMap<(Family, u32), Vec<Rule>>;

const EXPECTED: &str = "not, from, to, iif, oif, priority, lookup, l3mdev, suppress_prefixlength, \
                        blackhole, unreachable, prohibit or seg6local-behaviour";

/// Selectors and actions with a value that the fast path does not support.
const UNSUPPORTED: [&str; 14] = [
    "fwmark",
    "tos",
    "dsfield",
    "uidrange",
    "ipproto",
    "sport",
    "dport",
    "dscp",
    "flowlabel",
    "tun_id",
    "realms",
    "suppress_ifgroup",
    "goto",
    "map-to",
];

/// Parses a rule. A rule without a prefix and without a family in the context becomes one rule per
/// family, so the result may have two. (`ip` without `-6` adds it for IPv4 only.)
///
/// `rules` are the existing rules. They determine the priority of a rule without `priority`.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(words: &mut Words, ctx: &Context, rules: &Rules) -> Result<Vec<Rule>, ConfigError> {
    read(words, ctx)?.finish(words, ctx, rules)
}

fn read<'a>(words: &mut Words<'a>, ctx: &Context) -> Result<Draft<'a>, ConfigError> {
    let mut draft = Draft::default();
    // `ip rule show` begins with the priority: `32766:`.
    if let Some(word) = words.peek()
        && let Some(number) = word.text.strip_suffix(':').and_then(value::number)
    {
        words.take();
        draft.seen.note("priority", word)?;
        draft.priority = Some(number);
    }
    while let Some(word) = words.take() {
        draft.word(word, words, ctx)?;
    }
    Ok(draft)
}

/// Supported selectors, in the order of `ip rule help`.
const SELECTORS: [&str; 7] = [
    "not",
    "from",
    "to",
    "iif",
    "oif",
    "suppress_prefixlength",
    "priority",
];
const ACTIONS: [&str; 6] = [
    "lookup",
    "l3mdev",
    "blackhole",
    "unreachable",
    "prohibit",
    "seg6local-behaviour",
];

/// Returns the words that may follow these words on the line of a rule, for shell completion.
/// Prefixes, numbers and interfaces have no candidates.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    match words.last().copied().unwrap_or_default() {
        "lookup" | "table" => return vec!["main", "local", "default"],
        "from" | "to" => return vec!["all"],
        "seg6local-behaviour" => return proxies().collect(),
        "iif" | "dev" | "oif" | "proto" | "protocol" | "suppress_prefixlength" | "sup_pl" => {
            return vec![];
        }
        last if UNSUPPORTED.contains(&last) || is_priority(last) => return vec![],
        _ => {}
    }
    let acts = ACTIONS.iter().any(|action| words.contains(action));
    let actions = ACTIONS.into_iter().filter(|_| !acts);
    let selectors = SELECTORS.into_iter().filter(|word| !words.contains(word));
    selectors.chain(actions).collect()
}

/// Returns true if `ip rule` reads this word as the keyword of the priority: iproute2's
/// `iprule_modify` accepts every abbreviation of three words (`matches`).
fn is_priority(word: &str) -> bool {
    let keywords = ["preference", "order", "priority"];
    !word.is_empty() && keywords.iter().any(|keyword| keyword.starts_with(word))
}

/// Behaviors that `seg6local-behaviour` accepts.
fn proxies() -> impl Iterator<Item = &'static str> {
    let proxies = BEHAVIORS.iter().filter(|row| row.behavior.is_proxy());
    proxies.map(|row| row.name)
}

/// A pattern for existing rules. Without a priority it matches rules of any priority.
#[derive(Debug)]
pub struct Pattern {
    rules: Vec<Rule>,
    any_priority: bool,
}

impl Pattern {
    /// Parses the words.
    ///
    /// # Errors
    /// See [`parse`].
    pub fn parse(words: &mut Words, ctx: &Context) -> Result<Self, ConfigError> {
        let draft = read(words, ctx)?;
        Ok(Self {
            any_priority: draft.priority.is_none(),
            rules: draft.finish(words, ctx, &Rules::new())?,
        })
    }

    /// Returns true if it matches this rule, by any name of their interfaces.
    pub fn fits(&self, rule: &Rule, node: &Node) -> bool {
        let rule = with_own_names(rule, node);
        self.rules.iter().any(|wanted| {
            let mut wanted = with_own_names(wanted, node);
            if self.any_priority {
                wanted.priority = rule.priority;
            }
            wanted == rule
        })
    }
}

/// Returns the rule with the links' own names instead of their other names (`altname`).
pub fn with_own_names(rule: &Rule, node: &Node) -> Rule {
    let own = |name: &String| {
        let link = node.link_by_name(name);
        link.map_or_else(|| name.clone(), |link| link.name.clone())
    };
    Rule {
        iif: rule.iif.as_ref().map(own),
        oif: rule.oif.as_ref().map(own),
        ..rule.clone()
    }
}

/// Parses one line.
///
/// # Errors
/// See [`parse`].
pub fn parse_line(line: &str, ctx: &Context, rules: &Rules) -> Result<Vec<Rule>, ConfigError> {
    parse(&mut Words::from_line(line), ctx, rules)
}

/// Returns the priority that the kernel assigns to a rule without one: the second rule's priority
/// minus one (`fib_default_rule_pref`).
pub fn default_priority(rules: &Rules, family: Family) -> u32 {
    let mut list = rules
        .range((family, 0)..=(family, u32::MAX))
        .flat_map(|((_, priority), rules)| rules.iter().map(move |_| *priority));
    list.nth(1).unwrap_or_default().saturating_sub(1)
}

/// Returns the rules that the kernel creates.
pub fn kernel_rules() -> Rules {
    let lookup = |family, priority, table| {
        let action = RuleAction::Table(table);
        (
            (family, priority),
            vec![plain(family, priority, action, Owner::Kernel)],
        )
    };
    Rules::from([
        lookup(Family::V4, 0, TableId::LOCAL),
        lookup(Family::V4, 32766, TableId::MAIN),
        lookup(Family::V4, 32767, TableId::DEFAULT),
        lookup(Family::V6, 0, TableId::LOCAL),
        lookup(Family::V6, 32766, TableId::MAIN),
    ])
}

fn plain(family: Family, priority: u32, action: RuleAction, owner: Owner) -> Rule {
    Rule {
        family,
        priority,
        invert: false,
        iif: None,
        oif: None,
        from: None,
        to: None,
        l3mdev: false,
        suppress_prefixlength: None,
        action,
        unsupported: vec![],
        owner,
    }
}

#[derive(Default)]
struct Draft<'a> {
    seen: Once<'a>,
    invert: bool,
    priority: Option<u32>,
    from: Option<Prefix<'a>>,
    to: Option<Prefix<'a>>,
    iif: Option<String>,
    oif: Option<String>,
    table: Option<TableId>,
    l3mdev: bool,
    suppress_prefixlength: Option<u32>,
    action: Option<RuleAction>,
    unsupported: Vec<String>,
}

struct Prefix<'a> {
    word: Word<'a>,
    /// `None` means `all`.
    net: Option<IpNet>,
}

impl<'a> Draft<'a> {
    fn word(
        &mut self,
        word: Word<'a>,
        words: &mut Words<'a>,
        ctx: &Context,
    ) -> Result<(), ConfigError> {
        if let Some(keyword) = UNSUPPORTED.iter().find(|keyword| **keyword == word.text) {
            self.seen.note(keyword, word)?;
            let value = words.value(keyword, "its value")?;
            self.unsupported.push(format!("{keyword} {}", value.text));
            if *keyword == "goto" {
                self.act(word, RuleAction::Other)?;
            }
            return Ok(());
        }
        let name = match word.text {
            "not" => "not",
            "from" => "from",
            "to" => "to",
            "iif" | "dev" => "iif",
            "oif" => "oif",
            "lookup" | "table" => "lookup",
            "l3mdev" => "l3mdev",
            "suppress_prefixlength" | "sup_pl" => "suppress_prefixlength",
            // The origin of the rule does not affect forwarding.
            "proto" | "protocol" => "proto",
            // `ip rule show` prints `[detached]` for a missing interface, and `ip` accepts a filler
            // word before an action.
            "[detached]" | "type" => return Ok(()),
            word if is_priority(word) => "priority",
            "blackhole" => return self.act(word, RuleAction::Blackhole),
            "unreachable" => return self.act(word, RuleAction::Unreachable),
            "prohibit" => return self.act(word, RuleAction::Prohibit),
            "seg6local-behaviour" => {
                let expected = join(proxies(), ", ");
                let proxy = |text: &str| Behavior::from_name(text).filter(|b| b.is_proxy());
                let behavior = words.parsed(word.text, &expected, proxy)?;
                return self.act(word, RuleAction::Proxies(behavior));
            }
            "nop" => {
                self.unsupported.push("nop".to_owned());
                return self.act(word, RuleAction::Other);
            }
            _ => {
                return Err(unknown(word, EXPECTED));
            }
        };
        self.seen.note(name, word)?;
        match name {
            "not" => self.invert = true,
            "priority" => self.priority = Some(words.number(name, 0, u32::MAX)?),
            "from" => self.from = Some(prefix(words, name)?),
            "to" => self.to = Some(prefix(words, name)?),
            "iif" => self.iif = Some(interface(words, name)?),
            "oif" => self.oif = Some(interface(words, name)?),
            "l3mdev" => self.l3mdev = true,
            "suppress_prefixlength" => {
                self.suppress_prefixlength = Some(words.number(name, 0, i32::MAX as u32)?);
            }
            "proto" => {
                words.parsed(name, value::PROTOCOL_EXPECTED, value::protocol)?;
            }
            _ if words.take_if("[l3mdev-table]").is_some() => self.l3mdev = true,
            _ => self.table = Some(words.table(name, ctx.names)?),
        }
        Ok(())
    }

    fn act(&mut self, word: Word<'a>, action: RuleAction) -> Result<(), ConfigError> {
        self.seen.note("action", word)?;
        self.action = Some(action);
        Ok(())
    }

    fn finish(self, words: &Words, ctx: &Context, rules: &Rules) -> Result<Vec<Rule>, ConfigError> {
        for (a, b) in [
            ("lookup", "action"),
            ("lookup", "l3mdev"),
            ("l3mdev", "action"),
        ] {
            if let (Some(_), Some(word)) = (self.seen.word(a), self.seen.word(b)) {
                let expected = "one of lookup, l3mdev, blackhole, unreachable, prohibit, goto, nop, seg6local-behaviour";
                return Err(ConfigError::new(
                    word.place,
                    "second action",
                    word.text,
                    expected,
                ));
            }
        }
        if self.seen.word("not").is_none() && words.start() == words.end() {
            return Err(words.missing("rule", EXPECTED));
        }
        let action = match self.action {
            Some(action) => action,
            None if self.l3mdev => RuleAction::Table(TableId(0)),
            None => RuleAction::Table(self.table.unwrap_or(TableId::MAIN)),
        };
        let nets = || [&self.from, &self.to].into_iter().flatten();
        let named = nets()
            .find_map(|prefix| prefix.net.as_ref())
            .map(Family::of_prefix);
        let families = match ctx.family.or(named) {
            Some(family) => vec![family],
            None => vec![Family::V4, Family::V6],
        };
        let net = |prefix: &Option<Prefix>, keyword, family| match prefix {
            Some(Prefix { word, net: Some(_) }) => {
                let net = value::prefix(*word, keyword, Some(family))?;
                Ok(Some(net).filter(|net| net.prefix_len() != 0))
            }
            _ => Ok(None),
        };
        // Keep the printed order, so that rules are equal whatever the order of their words.
        let mut unsupported = self.unsupported.clone();
        unsupported.sort_by_key(|words| !is_fwmark_or_tos(words));
        families
            .into_iter()
            .map(|family| {
                let priority = self
                    .priority
                    .unwrap_or_else(|| default_priority(rules, family));
                Ok(Rule {
                    invert: self.invert,
                    iif: self.iif.clone(),
                    oif: self.oif.clone(),
                    from: net(&self.from, "from", family)?,
                    to: net(&self.to, "to", family)?,
                    l3mdev: self.l3mdev,
                    suppress_prefixlength: self.suppress_prefixlength,
                    unsupported: unsupported.clone(),
                    ..plain(family, priority, action, ctx.owner)
                })
            })
            .collect()
    }
}

fn prefix<'a>(words: &mut Words<'a>, keyword: &str) -> Result<Prefix<'a>, ConfigError> {
    let word = words.value(keyword, "all, an address or a prefix")?;
    let net = match word.text {
        "all" | "any" | "default" => None,
        _ => Some(value::prefix(word, keyword, None)?),
    };
    Ok(Prefix { word, net })
}

fn interface(words: &mut Words, keyword: &str) -> Result<String, ConfigError> {
    // A rule may name an interface that does not exist yet.
    words.parsed(keyword, config::INTERFACE_NAME, |text| {
        config::is_interface_name(text).then(|| text.to_owned())
    })
}

/// Prints a rule on one line. [`Style::Add`] shows the family by a prefix, but `ip` still needs
/// `-6` for IPv6.
pub fn print(rule: &Rule, names: &dyn Names, style: Style) -> String {
    let mut text = match style {
        Style::Add => String::new(),
        Style::Show => format!("{}:\t", rule.priority),
    };
    if rule.invert {
        text.push_str("not ");
    }
    let from = match &rule.from {
        Some(from) => value::prefix_text(from),
        None if style == Style::Show || rule.to.is_some() => "all".to_owned(),
        None => value::any(rule.family).to_string(),
    };
    let _ = write!(text, "from {from}");
    if let Some(to) = &rule.to {
        let _ = write!(text, " to {}", value::prefix_text(to));
    }
    for selector in rule
        .unsupported
        .iter()
        .filter(|words| is_fwmark_or_tos(words))
    {
        let _ = write!(text, " {selector}");
    }
    if let Some(iif) = &rule.iif {
        let _ = write!(text, " iif {iif}");
    }
    if let Some(oif) = &rule.oif {
        let _ = write!(text, " oif {oif}");
    }
    for selector in rule
        .unsupported
        .iter()
        .filter(|words| !is_fwmark_or_tos(words))
    {
        let _ = write!(text, " {selector}");
    }
    match rule.action {
        _ if rule.l3mdev && style == Style::Show => text.push_str(" lookup [l3mdev-table]"),
        _ if rule.l3mdev => text.push_str(" l3mdev"),
        RuleAction::Table(table) => {
            let _ = write!(text, " lookup {}", value::table_text(table, names));
        }
        RuleAction::Blackhole => text.push_str(" blackhole"),
        RuleAction::Unreachable => text.push_str(" unreachable"),
        RuleAction::Prohibit => text.push_str(" prohibit"),
        RuleAction::Proxies(behavior) => {
            let _ = write!(text, " seg6local-behaviour {}", behavior.descriptor().name);
        }
        // Printed with the unsupported selectors.
        RuleAction::Other => {}
    }
    if let Some(bits) = rule.suppress_prefixlength {
        let _ = write!(text, " suppress_prefixlength {bits}");
    }
    if style == Style::Add {
        let _ = write!(text, " priority {}", rule.priority);
    }
    text
}

/// `ip rule show` prints these two before the interfaces and the others after them.
fn is_fwmark_or_tos(words: &str) -> bool {
    words.starts_with("fwmark") || words.starts_with("tos")
}

#[cfg(test)]
mod tests;
