//! Commands at a simulated node: `sidestep` and `ip`.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sidestep_model::config::entries::yaml;
use sidestep_model::grammar::{Context, Words, neighbor, route};
use sidestep_model::node::{IfIndex, Link};
use sidestep_model::route::{Owner, Route, RouteKey};

use super::Simulation;
use crate::api::{BatchLine, ConfigText, Request};

impl Simulation {
    /// Executes `sidestep WORDS` for a change of the configuration.
    ///
    /// # Errors
    /// The message of the daemon.
    pub fn sidestep(&mut self, words: &str) -> Result<Value, String> {
        self.ask(request(words))
    }

    /// As [`Self::sidestep`], for commands that succeed.
    pub fn all<'a>(&mut self, commands: impl IntoIterator<Item = &'a str>) {
        for words in commands {
            if let Err(error) = self.sidestep(words) {
                panic!("{words}: {error}");
            }
        }
    }

    /// `sidestep --batch`.
    pub fn batch(&mut self, lines: &[&str]) -> Result<Value, String> {
        let numbered = (1..).zip(lines);
        let changes = numbered.map(|(line, words)| match request(words) {
            Request::Change { noun, verb, args } => BatchLine {
                line,
                noun,
                verb,
                args,
            },
            other => panic!("{other:?} in a batch"),
        });
        let changes = changes.collect();
        self.ask(Request::Batch { changes })
    }

    /// `sidestep config show`.
    pub fn shown(&mut self) -> String {
        yaml(&self.report::<Vec<_>>(Request::ShowConfig))
    }

    /// Executes `ip WORDS` for routes and neighbors.
    pub fn ip(&mut self, words: &str) {
        self.ip_unread(words);
        self.turn();
    }

    /// As [`Self::ip`], without a round of the event loop.
    pub fn ip_unread(&mut self, words: &str) {
        let mirror = &mut self.instance.mirror;
        let node = mirror.kernel().clone();
        let ctx = Context {
            names: &node,
            family: None,
            owner: Owner::Kernel,
        };
        let (object, rest) = words.split_once(' ').expect("an object");
        let (verb, rest) = rest.split_once(' ').expect("a verb");
        match (object, verb) {
            ("route", "del") => {
                let prefix = rest.parse().expect("a prefix");
                let is_there = |key: &&RouteKey| key.prefix == prefix;
                let key = *node.routes.keys().find(is_there).expect("a route");
                mirror.change(|node| drop(node.routes.remove(&key)));
            }
            ("route", _) => {
                let route = route::parse(&mut Words::from_line(rest), &ctx).expect(words);
                mirror.change(|node| drop(node.routes.insert(route.key, route)));
            }
            ("neigh", "del") => {
                let address: IpAddr = rest.parse().expect("an address");
                mirror.change(|node| node.neighbors.retain(|key, _| key.1 != address));
            }
            ("neigh", _) => {
                let (key, neighbor) = neighbor::parse_line(rest, &ctx).expect(words);
                mirror.change(|node| {
                    node.neighbors.insert(key, neighbor);
                });
            }
            ("link", "up" | "down") => {
                let ifindex = node.link_by_name(rest).expect("a link").ifindex;
                mirror.change(|node| {
                    let link = node.links.get_mut(&ifindex).expect("a link");
                    link.up = verb == "up";
                });
            }
            ("link", "del") => {
                let ifindex = node.link_by_name(rest).expect("a link").ifindex;
                mirror.change(|node| {
                    node.links.remove(&ifindex);
                    node.addresses.retain(|(dev, _)| *dev != ifindex);
                    node.neighbors.retain(|(dev, _), _| *dev != ifindex);
                    let uses =
                        |route: &Route| route.next_hops.iter().any(|hop| hop.dev == Some(ifindex));
                    node.routes.retain(|_, route| !uses(route));
                });
            }
            _ => panic!("{words}"),
        }
    }

    /// Adds an interface of the kernel, as another one is, with this name and index.
    pub fn add_link(&mut self, like: &str, name: &str, ifindex: u32) {
        let ifindex = IfIndex(ifindex);
        self.instance.mirror.change(|node| {
            let link = node.link_by_name(like).expect("a link");
            let link = Link {
                ifindex,
                name: name.into(),
                ..link.clone()
            };
            node.links.insert(ifindex, link);
        });
        self.turn();
    }
}

/// The request of a command.
pub(crate) fn request(words: &str) -> Request {
    let words: Vec<&str> = words.split_whitespace().collect();
    match &words[..] {
        ["port", "add", name] => Request::AddPort {
            name: (*name).into(),
        },
        ["port", "del", name] => Request::DelPort {
            name: (*name).into(),
        },
        ["oam", "rate", rate] => Request::SetOam {
            rate: rate.parse().expect("a rate"),
        },
        ["config", "reload"] => Request::ReloadConfig,
        ["config", "confirm"] => Request::ConfirmConfig,
        ["hmac", "del", key] => Request::DelHmac {
            key: key.parse().expect("a key"),
        },
        [noun, verb, args @ ..] => Request::Change {
            noun: word(noun),
            verb: word(verb),
            args: args.iter().map(|word| (*word).to_owned()).collect(),
        },
        _ => panic!("{words:?} is no change"),
    }
}

/// A noun or verb by its name in the protocol.
fn word<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_value(name.into()).expect("a word of the protocol")
}

/// `config apply` or `config diff` of a node file.
pub(crate) fn config_text(text: &str) -> ConfigText {
    ConfigText {
        text: text.to_owned(),
        secrets: Vec::new(),
    }
}
