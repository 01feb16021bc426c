//! Policies on which the cost of a decision is measured.

/// Returns 50 policies in Cedar. Each has a condition, and about half of them are about the source of the call.
#[must_use]
pub fn cedar_policies() -> String {
    let mut text = r#"permit (principal, action in Action::"call_tool", resource in Source::"files");"#.to_owned();
    for n in 0..49 {
        let policy = match n % 4 {
            0 => format!(
                r#"permit (principal, action == Action::"git__tool_{n}", resource) when {{ context.input has a }};"#
            ),
            1 => format!(
                r#"forbid (principal, action, resource in Source::"files")
                when {{ context.input has text && context.input.text like "*secret-{n}*" }};"#
            ),
            2 => format!(
                r#"forbid (principal in Profile::"guest-{n}", action, resource) unless {{ resource.readOnly }};"#
            ),
            _ => format!(
                r#"@requireApproval("why") permit (principal, action in Action::"call_tool", resource in Source::"files")
                when {{ context.input has size && context.input.size > {n} }};"#
            ),
        };
        text.push_str(&policy);
    }
    text
}
