//! Whether the services of SR proxies are there. The packet path does not look: a service that is gone is one that its
//! SID does not lead to any more, which is a change of the tables like any other.

mod message;
mod probe;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use sidestep_model::behavior::proxy::Probe;
use sidestep_model::node::Node;
use sidestep_model::route::{Encap, Route};
use sidestep_model::service::Service;

use crate::report;
use probe::Prober;
use watch::{State, Watch};

/// The services that are looked at.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    watched: BTreeMap<Service, Watched>,
}

#[derive(Debug)]
struct Watched {
    watch: Watch,
    prober: Option<Prober>,
    /// Why it cannot be asked.
    trouble: Option<String>,
}

impl Liveness {
    /// Looks at the services of these routes from now on, and at no other. What is known of one stays known.
    pub fn follow<'a>(&mut self, routes: impl Iterator<Item = &'a Route>, now: Instant) {
        let wanted: BTreeSet<Service> = routes.flat_map(services).collect();
        self.watched.retain(|service, _| wanted.contains(service));
        for service in wanted {
            let interval = Duration::from_millis(service.liveness.interval.into());
            self.watched.entry(service).or_insert_with(|| Watched {
                watch: Watch::new(interval, now),
                prober: None,
                trouble: None,
            });
        }
    }

    /// Those that are down.
    pub fn down(&self) -> BTreeSet<Service> {
        let down = |watched: &Watched| watched.watch.state() == State::Down;
        let all = self.watched.iter();
        all.filter(|(_, watched)| down(watched))
            .map(|(service, _)| *service)
            .collect()
    }

    /// Hears and asks. Whether another set of services is down than before.
    pub fn look(&mut self, node: &Node, now: Instant) -> bool {
        let mut changed = false;
        for (service, watched) in &mut self.watched {
            let down = |watched: &Watched| watched.watch.state() == State::Down;
            let before = down(watched);
            watched.look(service, node, now);
            changed |= down(watched) != before;
        }
        changed
    }

    /// When one has to be asked, if any is.
    pub fn due(&self) -> Option<Instant> {
        let asked = self.watched.iter().filter(|(service, _)| is_asked(service));
        asked.map(|(_, it)| it.watch.due()).min()
    }

    /// Readable when one may have answered.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let probers = self.watched.values().flat_map(|it| &it.prober);
        probers.map(Prober::fd)
    }

    /// What is known of the service of a route, if it is looked at.
    pub fn report(&self, route: &Route) -> Option<report::Service> {
        let watched = services(route).find_map(|service| self.watched.get(&service))?;
        let watch = &watched.watch;
        Some(report::Service {
            state: match watch.state() {
                State::Unknown => "unknown",
                State::Up => "up",
                State::Down => "down",
            }
            .into(),
            probes: watch.probes,
            answers: watch.answers,
            downs: watch.downs,
            trouble: watched.trouble.clone(),
        })
    }
}

impl Watched {
    fn look(&mut self, service: &Service, node: &Node, now: Instant) {
        if !is_asked(service) {
            let link = node.links.get(&service.dev);
            self.watch.tell(link.is_some_and(|link| link.up));
            return;
        }
        // Before the next question: the answer to the last one may wait.
        if self.prober.as_ref().is_some_and(Prober::answered) {
            self.watch.answered();
        }
        if self.watch.is_due(now) {
            // Who cannot be asked does not answer.
            let asked = self.ask(service, node);
            self.trouble = asked.err().map(|error| error.to_string());
        }
    }

    /// With a new socket after a failure: the interface may be another one by now.
    fn ask(&mut self, service: &Service, node: &Node) -> io::Result<()> {
        let mut prober = match self.prober.take() {
            Some(prober) => prober,
            None => Prober::open(service, node)?,
        };
        prober.ask(service, node)?;
        self.prober = Some(prober);
        Ok(())
    }
}

/// Its link alone does not say it.
fn is_asked(service: &Service) -> bool {
    service.liveness.probe != Probe::Link
}

/// Of all next hops of a route.
fn services(route: &Route) -> impl Iterator<Item = Service> + '_ {
    route.next_hops.iter().filter_map(|hop| match &hop.encap {
        Some(Encap::Seg6Local(local)) => local.service(),
        _ => None,
    })
}
