//! Received rate over the sending rate for each case of a group: in packets per second and as a
//! share of the sent packets.

use crate::engine::Case;
use sidestep_testkit::traffic::trial::Trial;

use super::Results;
use super::words::{Places, of_pdr};
use crate::campaign::file::{Find, Group};
use crate::campaign::plan::CURVE;
use crate::result::{Axis, Better, Kind, Point, Section, Series};

/// Returns two plots per case.
pub fn sections(results: &Results, group: &Group) -> Vec<Section> {
    let cases = results.cases(group);
    let places = Places::of(&cases);
    let pairs = cases.iter().flat_map(|case| {
        let throughput = Curve {
            name: "throughput",
            title: "what comes through",
            y: Axis::linear("received", "kpps")
                .better(Better::Higher)
                .resolution(results.resolution(Find::Pdr)),
            value: |trial| trial.received_rate() / 1e3,
        };
        let delivery = Curve {
            name: "delivery",
            title: "delivery ratio",
            y: Axis::linear("delivered", "%").better(Better::Higher),
            value: |trial| trial.delivery_ratio() * 100.0,
        };
        [throughput, delivery].map(|curve| curve.section(results, group, case, &places))
    });
    pairs.flatten().collect()
}

struct Curve {
    name: &'static str,
    title: &'static str,
    y: Axis,
    value: fn(&Trial) -> f64,
}

impl Curve {
    fn section(
        self,
        results: &Results,
        group: &Group,
        case: &Case,
        places: &Places,
    ) -> Option<Section> {
        let points = results.points(group).filter(|point| point.case == *case);
        let keys: Vec<String> = match &group.rates {
            None => CURVE.map(of_pdr).to_vec(),
            Some(rates) => rates
                .iter()
                .map(|rate| format!("{} packets/s", rate.value))
                .collect(),
        };
        let of = match &group.rates {
            None => "at 0.1 to 1.2 times each engine's own PDR",
            Some(_) => "all engines received the same rates",
        };
        let series = points.filter_map(|point| {
            let runs = results.runs(point, Find::Curve);
            let steps = (0..keys.len()).filter_map(|step| {
                let trials: Vec<&Trial> =
                    runs.iter().filter_map(|run| run.trials.get(step)).collect();
                let sent: f64 = trials.iter().map(|trial| trial.sent_rate() / 1e3).sum();
                let values: Vec<f64> = trials.iter().map(|trial| (self.value)(trial)).collect();
                (!values.is_empty()).then(|| Point {
                    // `x` is the measured rate, which differs in each run.
                    key: Some(keys[step].clone()),
                    ..Point::of(sent / values.len() as f64, values)
                })
            });
            let mut points: Vec<Point> = steps.collect();
            points.sort_by(|one, other| one.x.total_cmp(&other.x));
            (!points.is_empty()).then(|| Series {
                name: point.engine.clone(),
                subject: point.engine.clone(),
                published: false,
                points,
            })
        });
        let series: Vec<Series> = series.collect();
        (!series.is_empty()).then(|| Section {
            id: format!("{}-{}-{}", group.name.value, places.slug(case), self.name),
            title: format!("{}: {}, {}", group.title(), places.label(case), self.title),
            note: format!("Mean of the runs over the sending rate, {of}."),
            kind: Kind::Line,
            x: Axis::linear("sent", "kpps"),
            y: self.y,
            baseline: None,
            series,
        })
    }
}
