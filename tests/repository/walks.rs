//! Checks the tables of docs/architecture.md that follow a frame, a broadcast, a request and a
//! timer through the crate: the files exist and declare the functions, and each walk is short.

use super::{path, read};

const PAGE: &str = "docs/architecture.md";

/// The largest number of steps of a walk.
const MAX_STEPS: usize = 20;

/// A row of a table: its number, the functions that it names, and their files.
struct Step {
    number: usize,
    functions: Vec<String>,
    /// The types of `Type::function`.
    types: Vec<String>,
    files: Vec<String>,
}

/// Returns the code spans of a text.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_function_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// Returns the function that a code span names: `Type::function`, or `function`.
fn function(span: &str) -> Option<String> {
    let name = span.rsplit("::").next()?;
    is_function_name(name).then(|| name.to_owned())
}

/// Returns the type of a code span `Type::function`.
fn type_name(span: &str) -> Option<String> {
    let (name, function) = span.rsplit_once("::")?;
    is_function_name(function).then(|| name.rsplit("::").next().unwrap_or(name).to_owned())
}

/// Returns the steps of each table below a heading "The path of ..".
fn walks(page: &str) -> Vec<(String, Vec<Step>)> {
    let sections = page.split("\n## ").filter(|section| section.starts_with("The path of "));
    let walk = |section: &str| {
        let title = section.lines().next().unwrap_or_default().to_owned();
        let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
        let steps = rows.map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [number, step, place] = cells[..] else { panic!("{title}: a row has three cells: {row}") };
            Step {
                number: number.parse().unwrap_or_else(|_| panic!("{title}: {number} is no number")),
                functions: code_spans(step).filter_map(function).collect(),
                types: code_spans(step).filter_map(type_name).collect(),
                files: code_spans(place).map(str::to_owned).collect(),
            }
        });
        (title.clone(), steps.collect())
    };
    sections.map(walk).collect()
}

/// Functions of other crates that a step may mention.
const OF_OTHERS: [&str; 1] = ["catch_unwind"];

#[test]
fn the_functions_of_each_walk_are_declared_in_its_files() {
    let walks = walks(&read(&path(PAGE)));
    assert_eq!(walks.len(), 5, "a frame, a broadcast, a request, a timer and a message to a topic");
    let mut wrong = Vec::new();
    for (title, steps) in &walks {
        for Step { number, functions, types, files } in steps {
            let texts: Vec<_> = files.iter().map(|file| read(&path("src").join(file))).collect();
            let of_crate = functions.iter().filter(|name| !OF_OTHERS.contains(&name.as_str()));
            for name in of_crate {
                let declares = |text: &String| {
                    text.contains(&format!("fn {name}(")) || text.contains(&format!("fn {name}<"))
                };
                if !texts.iter().any(declares) {
                    wrong.push(format!("{title}, step {number}: {files:?} do not declare `{name}`"));
                }
            }
            for name in types {
                let has_word = |text: &String| {
                    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
                };
                if !texts.iter().any(has_word) {
                    wrong.push(format!("{title}, step {number}: {files:?} do not mention `{name}`"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{PAGE}:\n{}", wrong.join("\n"));
}

#[test]
fn the_steps_of_each_walk_are_numbered_and_few() {
    for (title, steps) in walks(&read(&path(PAGE))) {
        let numbers: Vec<_> = steps.iter().map(|step| step.number).collect();
        assert_eq!(numbers, (1..=steps.len()).collect::<Vec<_>>(), "{title}");
        assert!((5..=MAX_STEPS).contains(&steps.len()), "{title} has {} steps", steps.len());
        let named: usize = steps.iter().map(|step| step.functions.len()).sum();
        assert!(named + 2 >= steps.len(), "{title}: most steps name a function");
    }
}
