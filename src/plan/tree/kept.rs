//! Which kept product is at hand.

use super::TreePlan;

/// Which group's product is at hand, or to be made next, and whether its factors are still those that it was made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    group: Option<usize>,
    made: bool,
}

impl Kept {
    /// This group's product has been made.
    pub fn of(group: usize) -> Self {
        Self { group: Some(group), made: true }
    }

    /// This group's product was at hand in a run that goes on here: made of the same factors, it has the same bits.
    pub fn again(plan: &TreePlan, group: usize) -> Self {
        Self { group: Some(group).filter(|&group| group < plan.groups.len()), made: false }
    }

    /// The group whose product is at hand.
    pub fn at_hand(&self) -> Option<usize> {
        self.group
    }

    /// The group whose product serves a mode, the one at hand or else the one to make first, and whether it is made.
    pub fn group(&self, plan: &TreePlan, mode: usize) -> Option<(usize, bool)> {
        let at_hand = self.group.filter(|&group| !plan.groups[group].contains(&mode));
        let group = at_hand.or_else(|| plan.group_before(mode))?;
        plan.keeps(group).then_some((group, at_hand.is_some() && self.made))
    }

    /// A mode's factor has changed.
    pub fn changed(&mut self, plan: &TreePlan, mode: usize) {
        self.group = self.group.filter(|&group| !plan.groups[group].contains(&mode));
    }
}
