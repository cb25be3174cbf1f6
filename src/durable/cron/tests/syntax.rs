//! The texts of an expression.

use crate::durable::cron::expression::Cron;

#[test]
fn the_texts_are_kept() {
    let cron = Cron::new(" 0  9 * * mon-fri ", "asia/shanghai").unwrap();
    assert_eq!(cron.expression(), " 0  9 * * mon-fri ");
    assert_eq!(cron.zone(), "asia/shanghai");
    assert_eq!(Cron::new("@daily", "UTC").unwrap().to_string(), "@daily UTC");
}

#[test]
fn equal_texts_are_equal() {
    let cron = |expression, zone| Cron::new(expression, zone).unwrap();
    assert_eq!(cron("@daily", "UTC"), cron("@daily", "UTC").clone());
    assert_ne!(cron("@daily", "UTC"), cron("@daily", "Etc/UTC"));
    assert_ne!(cron("@daily", "UTC"), cron("0 0 * * *", "UTC"));
    let debug = format!("{:?}", cron("@daily", "UTC"));
    assert_eq!(debug, r#"Cron { expression: "@daily", zone: "UTC" }"#);
}
