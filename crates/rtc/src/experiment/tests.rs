use super::*;

const SMALL: &str = r#"
name = "small"
title = "A small call"
about = "Two schemes."
runs = 2
platform = "call"

[setup]
duration = "2s"

[[conditions]]
label = "clean"

[[conditions]]
label = "lossy"
set = { loss = "20%" }

[[schemes]]
label = "RTX"
set = { scheme = "arq" }

[[schemes]]
label = "Hairpin"
changes = "client"
set = { scheme = "hairpin", lambda = 1e-7 }

[[schemes]]
label = "clairvoyant"
changes = "bound"
set = { scheme = "clairvoyant" }

[[paper]]
condition = "lossy"
scheme = "Hairpin"
metric = "late"
value = [0.0, 0.01]

[[claims]]
text = "Hairpin has fewer late frames."
conditions = ["lossy"]
scheme = "Hairpin"
metric = "late"
is = { below = "RTX" }

[[claims]]
text = "RTX is never late."
scheme = "RTX"
metric = "late"
is = { at-most = 0.0 }
why = "Three losses in a row are late."
"#;

fn results(experiment: &Experiment) -> Results<'_> {
    let jobs = experiment.jobs(2).into_iter();
    Results::new(experiment, 2, jobs.map(|job| experiment.run(job, 1).expect("valid")).collect())
}

#[test]
fn claims_are_judged_in_their_conditions_and_the_paper_stands_beside() {
    let experiment = Experiment::parse("small.toml", SMALL).expect("valid");
    assert_eq!(experiment.jobs(2).len(), 12);
    let results = results(&experiment);
    let verdicts: Vec<_> = results.judged().iter().map(|j| (j.condition, j.verdict)).collect();
    assert_eq!(verdicts[1], ("clean", Verdict::Holds));
    assert_ne!(verdicts[0].1, Verdict::Fails);
    assert_ne!(verdicts[2].1, Verdict::Holds, "20 % loss makes frames late");
    let table = results.table();
    for part in ["| RTX | 0.000 ± 0.000 |", "late frames, %: 0.000 to 1.00", "RTX is never late."]
    {
        assert!(table.contains(part), "{part} in {table}");
    }
}

#[test]
fn a_claim_that_cannot_hold_fails() {
    let text = SMALL.replace("is = { at-most = 0.0 }", "is = { at-least = 1.1 }");
    let experiment = Experiment::parse("small.toml", &text).expect("valid");
    let results = results(&experiment);
    assert!(results.judged()[1..].iter().all(|judged| judged.verdict == Verdict::Fails));
    assert!(results.table().contains("does not hold: Three losses"));
}

#[test]
fn errors_name_key_and_value() {
    let error = |from: &str, to: &str| {
        assert!(SMALL.contains(from), "{from}");
        let text = SMALL.replacen(from, to, 1);
        Experiment::parse("small.toml", &text).expect_err("rejected").to_string()
    };
    assert_eq!(error("runs = 2", "runs = 0"), "runs = 0: expected 1 and above");
    assert_eq!(error("\"20%\"", "\"200%\"").split(": ").next(), Some("loss = 200%"));
    assert_eq!(error("lambda = 1e-7", "lambda = -1.0"), "lambda = -1: expected 0 and above");
    assert!(error("lambda", "lamda").contains("lamda"));
    assert!(error("duration = \"2s\"", "duration = \"2\"").starts_with("duration = 2: expected"));
    assert!(error("{ below = \"RTX\" }", "{ below = \"RTY\" }").starts_with("claims.is = RTY"));
    assert!(error("metric = \"late\"", "metric = \"lat\"").starts_with("metric = lat"));
    assert!(error("\"call\"", "\"cal\"").starts_with("small.toml, line 6"));
    assert!(error("{ scheme = \"arq\" }", "{ scheme = \"fec\" }").starts_with("scheme = fec"));
}

#[test]
fn impossible_codes_are_rejected_by_their_keys() {
    let error = |platform: &str, keys: &str| {
        let text = SMALL.replace("\"call\"", platform);
        let text = text.split("[[schemes]]").next().expect("a head").to_owned()
            + &format!("[[schemes]]\nlabel = \"a\"\nset = {{ {keys} }}\n");
        Experiment::parse("a.toml", &text).expect_err("rejected").to_string()
    };
    let block = error("\"transfer\"", "scheme = \"arq\", block = true, repair = 256");
    assert_eq!(block, "block.repair = 256: expected 1 to 255 packets");
    let tambur = error("\"conference\"", "scheme = \"tambur\", tau = 0");
    assert_eq!(tambur, "tau = 0: expected 1 to 16 frames");
}

#[test]
fn built_in_specifications_are_valid_and_named_like_their_files() {
    for (name, text) in BUILT_IN {
        let experiment = Experiment::parse(name, text).expect("valid");
        assert_eq!((&experiment.name, experiment.claims.is_empty()), (&name.to_string(), false));
    }
}
