//! A platform model by itself: for whoever asks it for factors without scheduling by them.

use super::file::{read, Head, ProviderFileError};
use super::model::{Model, PlatformModel};
use super::{model_for, wanted, Context, ProviderError};
use crate::event::EventSets;
use amp_machine::Locator;
use std::path::Path;

/// The platform model that provider `model` takes on the machine of `context`, or that of `file`,
/// and what it wants counted, checked as [`prepare`](super::prepare) does. The provider of it is
/// [`Model::new`], whose readings have the sets of each core type by their place.
///
/// # Errors
/// As [`prepare`](super::prepare); a file of another kind is refused.
pub fn platform_model(
    file: Option<&Path>,
    context: &Context<'_>,
) -> Result<(PlatformModel, EventSets), ProviderError> {
    let model = match file {
        Some(path) => of_file(path, context)?,
        None => model_for(context, PlatformModel::fits)?,
    };
    let sets = wanted(&mut Model::new(model.clone()), context)?;
    Ok((model, sets))
}

fn of_file(path: &Path, context: &Context<'_>) -> Result<PlatformModel, ProviderFileError> {
    let text = read(path)?;
    let locator = Locator::new(path, &text);
    let head: Head = toml::from_str(&text).map_err(|e| locator.toml(&e))?;
    match &head.kind {
        Some(kind) if kind.get_ref() != "model" => {
            let message = format!(
                "`{}` is no platform model, which `model` is",
                kind.get_ref()
            );
            return Err(locator.value(kind.span().start, "kind", message).into());
        }
        _ => {}
    }
    let model = PlatformModel::parse(path, &text)?;
    model
        .is_for(context.pmus)
        .map_err(|why| ProviderFileError::OtherMachine {
            path: path.to_owned(),
            why,
        })?;
    Ok(model.trusting(context.pmus, context.trust))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CoreTypeId;
    use crate::pmu::Pmus;
    use crate::provider::MetricId;

    const MODEL: &str = r#"
kind = "model"
name = "made-up"
[[core_type]]
name = "big"
[[core_type.event_set]]
[[core_type.metric]]
name = "ipc"
count = "instructions"
per = "cycles"
[[core_type.factor]]
predicts = "speedup"
base = 1.5
error = 0.1
linear = { ipc = 0.5 }
[[core_type]]
name = "little"
[[core_type.event_set]]
"#;

    fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn context(pmus: &Pmus) -> Context<'_> {
        Context {
            pmus,
            counters: Ok(()),
            energy_per_core_type: true,
            thread_director: Err("none in a test".to_owned()),
            models: None,
            trust: None,
        }
    }

    #[test]
    fn a_model_says_what_it_predicts_and_wants() {
        let (_dir, path) = written(MODEL);
        let pmus = Pmus::generic(&[vec![0], vec![1]], 4);
        let (model, sets) = platform_model(Some(&path), &context(&pmus)).unwrap();
        let (big, little) = (CoreTypeId(0), CoreTypeId(1));
        assert_eq!((sets.of(big).len(), sets.of(little).len()), (1, 1));
        assert!(model.predicts(big, MetricId::SpeedupFactor(big)));
        assert!(!model.predicts(big, MetricId::EfficiencyFactor(big)));
        assert!(!model.predicts(big, MetricId::Ipc(big)));
        assert!(!model.predicts(little, MetricId::SpeedupFactor(big)));
        assert!(!model.predicts(CoreTypeId(7), MetricId::SpeedupFactor(big)));
        assert_eq!(model.shortest().0, 1_000_000);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let pmus = Pmus::generic(&[vec![0], vec![1]], 4);
        let refused = |text: &str| {
            let (_dir, path) = written(text);
            let e = platform_model(Some(&path), &context(&pmus)).unwrap_err();
            e.to_string()
        };
        let e = refused("kind = \"declared\"\n");
        assert!(e.contains("line 1") && e.contains("`kind`"), "{e}");
        let other = MODEL.replace(
            "[[core_type]]\nname = \"big\"",
            "machine = [\"other\"]\n[[core_type]]\nname = \"big\"",
        );
        let e = refused(&other);
        assert!(e.contains("`other`"), "{e}");
        let e = platform_model(Some(Path::new("/no/m.toml")), &context(&pmus));
        assert!(e.unwrap_err().to_string().contains("/no/m.toml"));
        let e = platform_model(None, &context(&pmus)).unwrap_err();
        assert!(matches!(e, ProviderError::NoModel { .. }), "{e}");
        let one = Pmus::generic(&[vec![0], vec![1]], 1);
        let (_dir, path) = written(MODEL);
        let e = platform_model(Some(&path), &context(&one)).unwrap_err();
        assert!(matches!(e, ProviderError::Event { .. }), "{e}");
    }
}
