//! Boosts stumps on synthetic data and prints data, training curve and predictions as JSON for
//! `crosscheck.py`.

use amp_models::sample::Table;
use amp_models::stumps::{boost, generator, Boosted, Settings};
use rand::RngExt;
use serde_json::json;

const METRICS: usize = 6;
const ROUNDS: usize = 300;

/// Windows with metrics of very different sizes, of which three matter. Metrics are exact in single
/// precision, in which the other side keeps them.
fn synthetic(rows: usize, seed: u64) -> Table {
    let mut rng = generator(seed, 0);
    let mut t = Table {
        programs: vec!["synthetic".to_owned()],
        x: vec![vec![]; METRICS],
        ..Table::default()
    };
    for _ in 0..rows {
        let x: [f64; METRICS] =
            std::array::from_fn(|m| f64::from(rng.random::<f32>() * 10f32.powi(m as i32 - 2)));
        let step = if x[0] <= 0.004 { -0.4 } else { 0.3 };
        let y = 2.0 + step + (3.0 * x[2]).sin() - 0.02 * x[3] * x[1] + rng.random_range(-0.1..0.1);
        t.push(0, &x, y);
    }
    t
}

fn predictions(b: &Boosted, t: &Table) -> Vec<f64> {
    (0..t.len())
        .map(|r| b.model.predict(&t.row(r).collect::<Vec<f64>>()))
        .collect()
}

fn main() {
    let (train, test) = (synthetic(800, 1), synthetic(400, 2));
    let settings = |subsample| Settings {
        shrinkage: 0.1,
        subsample,
        min_leaf: 5,
        ..Settings::default()
    };
    let run = |subsample, seed| {
        let uniform = vec![1.0; train.len()];
        boost(
            &train,
            &uniform,
            None,
            &settings(subsample),
            ROUNDS,
            &mut generator(seed, 0),
        )
    };
    let whole = run(1.0, 0);
    let drawn: Vec<_> = (0..20)
        .map(|seed| {
            let b = run(0.5, seed);
            json!({"training": b.training.last(), "predictions": predictions(&b, &test)})
        })
        .collect();
    let out = json!({
        "rounds": ROUNDS, "shrinkage": 0.1, "min_leaf": 5,
        "train": {"x": train.x, "y": train.y}, "test": {"x": test.x, "y": test.y},
        "whole": {"training": whole.training, "predictions": predictions(&whole, &test)},
        "drawn": drawn,
    });
    println!("{out}");
}
