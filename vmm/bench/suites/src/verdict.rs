//! What is said of a program that has ended.

use crate::life::Life;
use crate::recipe::Program;
use crate::ways::Way;

/// What a life of a program was worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its results are right, as far as it checks them.
    Passed,
    /// It failed, as its recipe says that it must.
    Lacks(String),
    /// It failed, or passed where its recipe says that it cannot.
    Failed(String),
}

impl Verdict {
    /// Judges the life of a program that ran by `way`.
    pub fn of(program: &Program, way: Way, life: &Life) -> Self {
        let wrong = wrong(program, life);
        let lacks = program.lacks.as_ref().filter(|_| way != Way::Native);
        match (wrong, lacks) {
            (Some(_), Some(lacks)) => Self::Lacks(lacks.clone()),
            (None, Some(_)) => Self::Failed(String::from("it passes: remove `lacks`")),
            (Some(wrong), None) => Self::Failed(wrong),
            (None, None) => Self::Passed,
        }
    }
}

/// Returns what is wrong with a life, if anything is.
fn wrong(program: &Program, life: &Life) -> Option<String> {
    if life.status != 0 {
        let printed = || life.output.lines().rfind(|line| !line.trim().is_empty());
        let said = life.said.first().map(String::as_str).or_else(printed);
        let said = said.map_or_else(String::new, |line| format!(": {line}"));
        return Some(format!("exit status {}{said}", life.status));
    }
    // Some programs look at no error.
    if !program.faults {
        if let Some(fault) = &life.fault {
            return Some(format!("the device stopped: {fault}"));
        }
        // In a guest, the libraries write to where the program writes.
        let mut said = life
            .said
            .iter()
            .map(String::as_str)
            .chain(life.output.lines());
        if let Some(error) = said.find(|line| is_error(line)) {
            return Some(error.to_owned());
        }
    }
    let found = program
        .wrong
        .as_ref()
        .and_then(|wrong| wrong.find(&life.output));
    if let Some(found) = found {
        return Some(format!("wrong results: {}", found.as_str().trim()));
    }
    let is_right = program
        .right
        .as_ref()
        .is_none_or(|right| right.is_match(&life.output));
    (!is_right).then(|| String::from("it does not say that its results are right"))
}

/// Whether a line is one by which a library of Causeway tells of an error.
fn is_error(line: &str) -> bool {
    ["libcuda: error: ", "libcudart: error: "]
        .iter()
        .any(|it| line.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Scale, Suite};

    fn verdict(change: impl FnOnce(&mut Program, &mut Life)) -> Verdict {
        let mut suite = Suite::named("samples", Scale::Gpu).unwrap();
        let named = suite.programs.iter().position(|it| it.name == "matrixMul");
        let mut program = suite.programs.swap_remove(named.unwrap());
        let mut life = Life {
            output: String::from("Result = PASS\n"),
            ..Life::default()
        };
        change(&mut program, &mut life);
        Verdict::of(&program, Way::Process, &life)
    }

    #[test]
    fn each_thing_that_can_be_wrong_is_enough() {
        let failed = |text: &str| Verdict::Failed(text.into());
        assert_eq!(verdict(|_, _| {}), Verdict::Passed);
        assert_eq!(
            verdict(|_, life| (life.status, life.said) = (3, vec!["no arrays".into()])),
            failed("exit status 3: no arrays")
        );
        assert_eq!(
            verdict(|_, life| life.output += "Result = FAIL"),
            failed("wrong results: Result = FAIL")
        );
        assert_eq!(
            verdict(|_, life| life.output.clear()),
            failed("it does not say that its results are right")
        );
        let fault = Some(String::from("a load at 0x10"));
        let of_load = |life: &mut Life| life.fault.clone_from(&fault);
        assert_eq!(
            verdict(|_, life| of_load(life)),
            failed("the device stopped: a load at 0x10")
        );
        let told = String::from("libcudart: error: no code for this device");
        assert_eq!(
            verdict(|_, life| life.said = vec!["libcuda: warn: a".into(), told.clone()]),
            failed(&told)
        );
        assert_eq!(verdict(|_, life| life.output += &told), failed(&told));
        let meant = |program: &mut Program, life: &mut Life| {
            program.faults = true;
            of_load(life);
        };
        assert_eq!(verdict(meant), Verdict::Passed);
    }

    #[test]
    fn what_a_recipe_says_is_lacking_must_be() {
        let lacking = |program: &mut Program| program.lacks = Some("arrays".into());
        assert_eq!(
            verdict(|program, life| (lacking(program), life.status = 1).0),
            Verdict::Lacks("arrays".into())
        );
        let stale = verdict(|program, _| lacking(program));
        assert_eq!(stale, Verdict::Failed("it passes: remove `lacks`".into()));
    }
}
