//! The columns of a result: the text table, the page's table and its charts are made from
//! [`columns`]. They are the fields of [`PolicyResult`], one entry of [`FIELDS`] each, and behind them
//! the entries of [`FIGURES`], where a new one goes.

use crate::evaluation::{
    BenchReport, Better, MixFigure, OracleResult, PolicyResult, RunResult, FIGURES,
};
use crate::report::number::{measured, rounded, UNKNOWN};
use amp_metrics::uncertainty::Measured;
use std::sync::LazyLock;

/// A figure of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// With its uncertainty, where that is known.
    Measured(Measured),
    /// A plain number.
    Number(f64),
    /// A number of things.
    Count(usize),
}

/// Where a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// In the text table and on the page.
    Everywhere,
    /// On the page only.
    Page,
}

/// A chart of bars, one per policy.
#[derive(Clone, Copy, Debug)]
pub struct Chart {
    /// Title.
    pub title: &'static str,
    /// What the figure is, or its unit in the chart; which values are good is added.
    pub note: &'static str,
    /// Where bars begin.
    pub origin: f64,
    /// What values are multiplied by, so that the axis has short numbers.
    pub scale: f64,
}

/// A value of a run; none where it is not known run by run.
type InRun = fn(&RunResult) -> Option<f64>;

/// Where a column's values are.
#[derive(Clone, Copy, Debug)]
enum Values {
    /// In a field of a policy's result, and of a run's.
    Field(fn(&PolicyResult) -> Option<Figure>, InRun),
    /// Under its key among the figures.
    Figures,
}

/// A column of a result.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its field of [`PolicyResult`], or of [`PolicyResult::figures`], and so its key in JSON.
    pub key: &'static str,
    /// Title.
    pub title: &'static str,
    /// Unit; empty for a ratio.
    pub unit: &'static str,
    /// Which values are good ones.
    pub better: Better,
    values: Values,
    /// Whether `--compare` tests it. Each test more makes the others weaker.
    pub is_compared: bool,
    /// The steady-state prediction of the figure, where there is one.
    pub predicted: Option<fn(&OracleResult) -> f64>,
    /// Where it is shown.
    pub shown: Shown,
    /// Its chart, if it has one.
    pub chart: Option<Chart>,
}

/// Columns that are fields of their own.
const FIELDS: &[Column] = &[
    Column {
        key: "asp",
        title: "ASP",
        unit: "",
        better: Better::Higher,
        values: Values::Field(|r| Some(Figure::Measured(r.asp)), |r| Some(r.asp)),
        is_compared: true,
        predicted: Some(|o| o.asp),
        shown: Shown::Everywhere,
        chart: Some(Chart {
            title: "Aggregate speedup (ASP)",
            note: "by work done, against slow cores only",
            origin: 0.0,
            scale: 1.0,
        }),
    },
    Column {
        key: "asp_gm",
        title: "ASP (geometric mean)",
        unit: "",
        better: Better::Higher,
        values: Values::Field(|r| r.asp_gm.map(Figure::Measured), |r| r.asp_gm),
        is_compared: false,
        predicted: None,
        shown: Shown::Page,
        chart: None,
    },
    Column {
        key: "stp",
        title: "STP",
        unit: "",
        better: Better::Higher,
        values: Values::Field(|r| r.stp.map(Figure::Measured), |r| r.stp),
        is_compared: true,
        predicted: None,
        shown: Shown::Everywhere,
        chart: None,
    },
    Column {
        key: "unfairness",
        title: "unfairness",
        unit: "",
        better: Better::One,
        values: Values::Field(
            |r| Some(Figure::Measured(r.unfairness)),
            |r| Some(r.unfairness),
        ),
        is_compared: true,
        predicted: Some(|o| o.unfairness),
        shown: Shown::Everywhere,
        chart: Some(Chart {
            title: "Unfairness",
            note: "largest slowdown over smallest",
            origin: 1.0,
            scale: 1.0,
        }),
    },
    Column {
        key: "edp_by_work",
        title: "EDP",
        unit: "J·s",
        better: Better::Lower,
        values: Values::Field(|r| r.edp_by_work.map(Figure::Measured), |r| r.edp_by_work),
        is_compared: true,
        predicted: None,
        shown: Shown::Everywhere,
        chart: Some(Chart {
            title: "Energy-delay product",
            note: "J·s for as much work as one completion of every program",
            origin: 0.0,
            scale: 1.0,
        }),
    },
    Column {
        key: "edp",
        title: "EDP by instructions",
        unit: "J·s/instr.",
        better: Better::Lower,
        values: Values::Field(|r| r.edp.map(Figure::Measured), |r| r.edp),
        is_compared: true,
        predicted: None,
        shown: Shown::Page,
        chart: None,
    },
    Column {
        key: "energy_j",
        title: "energy",
        unit: "J",
        better: Better::Lower,
        values: Values::Field(|r| r.energy_j.map(Figure::Measured), |_| None),
        is_compared: false,
        predicted: None,
        shown: Shown::Page,
        chart: None,
    },
    Column {
        key: "swaps_per_s",
        title: "swaps/s",
        unit: "",
        better: Better::Neither,
        values: Values::Field(|r| r.swaps_per_s.map(Figure::Number), |_| None),
        is_compared: false,
        predicted: None,
        shown: Shown::Everywhere,
        chart: None,
    },
    Column {
        key: "runs",
        title: "runs",
        unit: "",
        better: Better::Neither,
        values: Values::Field(
            |r| (!r.runs.is_empty()).then_some(Figure::Count(r.runs.len())),
            |_| None,
        ),
        is_compared: false,
        predicted: None,
        shown: Shown::Page,
        chart: None,
    },
];

impl Figure {
    /// The figure as people read it.
    pub fn text(self) -> String {
        match self {
            Figure::Measured(m) => measured(m),
            Figure::Number(x) => rounded(x, 2),
            Figure::Count(n) => n.to_string(),
        }
    }

    /// The value with its uncertainty, where that is known.
    pub fn measured(self) -> Measured {
        match self {
            Figure::Measured(m) => m,
            Figure::Number(x) => Measured::single(x),
            Figure::Count(n) => Measured::exact(n as f64),
        }
    }
}

impl Column {
    /// Title with the unit.
    pub fn header(&self) -> String {
        match self.unit {
            "" => self.title.to_owned(),
            unit => format!("{} ({unit})", self.title),
        }
    }

    fn of_figure(f: &MixFigure) -> Column {
        Column {
            key: f.key,
            title: f.title,
            unit: f.unit,
            better: f.better,
            values: Values::Figures,
            is_compared: f.is_headline,
            predicted: None,
            shown: match f.is_headline {
                true => Shown::Everywhere,
                false => Shown::Page,
            },
            chart: None,
        }
    }

    /// The figure of a policy; none where it is not known.
    pub fn of(&self, r: &PolicyResult) -> Option<Figure> {
        match self.values {
            Values::Field(of, _) => of(r),
            Values::Figures => r.figures.get(self.key).copied().map(Figure::Measured),
        }
    }

    /// The value of a run; none where it is not known run by run.
    pub fn in_run(&self, r: &RunResult) -> Option<f64> {
        match self.values {
            Values::Field(_, of) => of(r),
            Values::Figures => r.figures.get(self.key).copied(),
        }
    }

    fn known(&self, report: &BenchReport) -> bool {
        report.results.iter().any(|r| self.of(r).is_some())
    }

    /// The prediction for a policy.
    pub fn prediction(&self, r: &PolicyResult) -> Option<f64> {
        Some((self.predicted?)(r.oracle.as_ref()?))
    }
}

/// Every column, in the order of the tables.
pub fn columns() -> &'static [Column] {
    static ALL: LazyLock<Vec<Column>> = LazyLock::new(|| {
        let further = FIGURES.iter().map(Column::of_figure);
        FIELDS.iter().copied().chain(further).collect()
    });
    &ALL
}

/// The columns that have a figure in `report`.
pub fn known(report: &BenchReport) -> impl Iterator<Item = &'static Column> + '_ {
    columns().iter().filter(|c| c.known(report))
}

/// Header and rows of the table of policies: what is known of `report` in the columns that are `wanted`,
/// and at the end the predictions. A column that nothing is known for is left out.
pub fn table(
    report: &BenchReport,
    wanted: impl Fn(&Column) -> bool,
) -> (Vec<String>, Vec<Vec<String>>) {
    let shown: Vec<&Column> = known(report).filter(|c| wanted(c)).collect();
    let is_predicted = |c: &Column| report.results.iter().any(|r| c.prediction(r).is_some());
    let predicted: Vec<&Column> = shown.iter().copied().filter(|c| is_predicted(c)).collect();
    let mut header = vec!["policy".to_owned()];
    header.extend(shown.iter().map(|c| c.header()));
    header.extend(
        predicted
            .iter()
            .map(|c| format!("steady-state {}", c.title)),
    );
    let unknown = || UNKNOWN.to_owned();
    let row = |r: &PolicyResult| {
        let mut row = vec![r.policy.clone()];
        row.extend(
            shown
                .iter()
                .map(|c| c.of(r).map_or_else(unknown, Figure::text)),
        );
        let said = |c: &&Column| c.prediction(r).map_or_else(unknown, |p| rounded(p, 3));
        row.extend(predicted.iter().map(said));
        row
    };
    (header, report.results.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> PolicyResult {
        let text = r#"{"policy":"p","asp":{"value":2.5,"u":0.1},"unfairness":{"value":1.5,"u":0.2},
            "asp_gm":{"value":2.25,"u":null},"stp":{"value":4.75,"u":0.1},
            "edp":{"value":1e-9,"u":1e-11},"edp_by_work":{"value":3.5,"u":0.5},"energy_j":{"value":40.0,"u":1.0},"swaps_per_s":1.25,"apps":[],
            "figures":{"antt":{"value":1.25,"u":0.05}},
            "oracle":{"asp":3.0,"unfairness":1.25,"big_time_share":[],"slowdown":[]}}"#;
        let mut r: PolicyResult = serde_json::from_str(text).unwrap();
        r.runs = vec![
            RunResult {
                asp: 2.5,
                asp_gm: None,
                stp: None,
                unfairness: 1.5,
                edp: None,
                edp_by_work: None,
                duration_s: 1.0,
                figures: Default::default(),
            };
            2
        ];
        r
    }

    /// What a column shows is what JSON has under its key.
    #[test]
    fn every_column_is_the_field_of_its_key() {
        let r = result();
        let json = serde_json::to_value(&r).unwrap();
        let (mut keys, mut titles) = (Vec::new(), Vec::new());
        for c in columns() {
            assert!(
                !keys.contains(&c.key) && !titles.contains(&c.title),
                "{} is there twice",
                c.key
            );
            keys.push(c.key);
            titles.push(c.title);
            let field = match c.values {
                Values::Field(..) => &json[c.key],
                Values::Figures => &json["figures"][c.key],
            };
            let value = field["value"].as_f64().or(field.as_f64());
            let value = value.or(field.as_array().map(|a| a.len() as f64));
            let shown = c.of(&r).unwrap().measured();
            assert_eq!(Some(shown.value), value, "{}", c.key);
            assert_eq!(
                field["u"].as_f64(),
                shown.u.filter(|_| field.is_object()),
                "{}",
                c.key
            );
            if c.predicted.is_some() {
                assert_eq!(c.prediction(&r), json["oracle"][c.key].as_f64());
            }
        }
    }

    #[test]
    fn what_nobody_knows_is_no_column() {
        let mut bare = result();
        (bare.edp, bare.edp_by_work, bare.energy_j) = (None, None, None);
        (bare.oracle, bare.swaps_per_s) = (None, None);
        let report = |results| BenchReport {
            workload: "w".into(),
            machine: Default::default(),
            on: "host".into(),
            provider: "declared".into(),
            environment: Default::default(),
            results,
            failed: Vec::new(),
        };
        let text = |c: &Column| c.shown == Shown::Everywhere;
        let (header, rows) = table(&report(vec![bare.clone()]), text);
        assert_eq!(header, ["policy", "ASP", "STP", "unfairness"]);
        assert_eq!(rows, [["p", "2.50 ± 0.10", "4.75 ± 0.10", "1.50 ± 0.20"]]);
        let (header, rows) = table(&report(vec![bare, result()]), |_| true);
        assert_eq!(
            header[5..9],
            [
                "EDP (J·s)",
                "EDP by instructions (J·s/instr.)",
                "energy (J)",
                "swaps/s"
            ]
        );
        assert_eq!(
            header[10..],
            ["ANTT", "steady-state ASP", "steady-state unfairness"]
        );
        assert_eq!(rows[0][5], UNKNOWN);
        assert_eq!(rows[1][10..], ["1.250 ± 0.050", "3.000", "1.250"]);
    }
}
