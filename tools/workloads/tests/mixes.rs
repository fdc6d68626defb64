//! The mixes against the scheduler's parser and the catalogue.

use amp_eval::workload::Workload;
use amp_workloads::catalogue::Catalogue;
use std::path::PathBuf;

/// The mixes of a folder, by their file's name.
fn mixes_in(folder: &str) -> Vec<(String, Workload)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        all.push((name, Workload::load(&path).unwrap()));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// The mixes of the board and of guests; those in folders other than `bench` and `phone` are the simulator's
/// and have no commands, or declare no factors.
fn mixes() -> Vec<(String, Workload)> {
    mixes_in("mixes")
}

/// Mixes that tell contenders apart, and those of machines with three core types.
fn bench() -> Vec<(String, Workload)> {
    [mixes_in("mixes/bench"), mixes_in("mixes/phone")].concat()
}

fn all() -> impl Iterator<Item = (String, Workload)> {
    mixes().into_iter().chain(bench())
}

/// Factors are measured alone, so that no figure in a file grows old; each names its machine.
#[test]
fn mixes_of_the_bench_are_named_after_their_file_and_their_machine() {
    let mixes = bench();
    assert!(mixes.len() >= 12, "{}", mixes.len());
    for (file, mix) in mixes {
        assert_eq!(mix.name, file);
        let machine = mix.machine.as_deref().unwrap();
        assert!(
            file.starts_with(&format!("{machine}-")),
            "{file}: {machine}"
        );
    }
}

/// Programs that no model was trained on stay for the table that judges models.
#[test]
fn mixes_of_the_bench_have_no_program_that_is_held_out() {
    let list = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/programs.toml");
    let list: toml::Table = toml::from_str(&std::fs::read_to_string(list).unwrap()).unwrap();
    let held_out =
        |p: &&toml::Value| p.get("held_out").and_then(toml::Value::as_bool) == Some(true);
    let names = list["program"].as_array().unwrap().iter().filter(held_out);
    let names: Vec<&str> = names.map(|p| p["command"][0].as_str().unwrap()).collect();
    assert!(names.contains(&"gnugo"), "{names:?}");
    for (file, mix) in bench() {
        for app in &mix.apps {
            let program = app.command.as_deref().unwrap()[0].as_str();
            assert!(!names.contains(&program), "{file}: {}", app.name);
        }
    }
}

#[test]
fn every_mix_is_named_after_its_file_and_declares_every_speedup() {
    let mixes = mixes();
    for wanted in [
        "juno-2h4l",
        "juno-contention",
        "juno-real",
        "juno-threads",
        "smoke",
        "x86-smoke",
    ] {
        assert!(mixes.iter().any(|(file, _)| file == wanted), "{wanted}");
    }
    for (file, mix) in mixes {
        assert_eq!(mix.name, file);
        for app in &mix.apps {
            assert!(
                app.speedup.is_some_and(|s| s >= 1.0),
                "{file}: {}",
                app.name
            );
        }
    }
}

#[test]
fn every_command_and_every_file_it_names_is_known() {
    let catalogue = Catalogue::shipped().unwrap();
    for (file, mix) in all() {
        for app in &mix.apps {
            let command = app.command.as_deref().unwrap();
            let needs = catalogue
                .needs([command])
                .unwrap_or_else(|e| panic!("{file}: {e}"));
            // a word that looks like a file is an input that will be made
            for word in &command[1..] {
                let extension = word.rsplit_once('.').map_or("", |(_, e)| e);
                if extension.len() == 3 && extension.chars().all(|c| c.is_ascii_lowercase()) {
                    assert!(
                        needs.inputs.contains_key(word),
                        "{file}: {}: {word}",
                        app.name
                    );
                }
            }
        }
    }
}

#[test]
fn threads_are_declared_as_the_command_says() {
    for (file, mix) in all() {
        for app in &mix.apps {
            let command = app.command.as_deref().unwrap();
            let threads = command
                .iter()
                .position(|w| w == "--threads")
                .map(|i| &command[i + 1]);
            let stages = command.iter().filter(|w| *w == "--phase").count() as u32;
            let said = match threads {
                None if command.iter().any(|w| w == "pipeline") => stages,
                threads => threads.map_or(1, |t| t.parse().unwrap()),
            };
            assert_eq!(said, app.threads, "{file}: {}", app.name);
        }
    }
}

#[test]
fn the_mix_of_real_programs_has_at_least_three() {
    let (_, mix) = mixes()
        .into_iter()
        .find(|(file, _)| file == "juno-real")
        .unwrap();
    let real = mix
        .apps
        .iter()
        .filter(|a| a.command.as_ref().unwrap()[0] != "amp-workload");
    assert!(real.count() >= 3);
}
