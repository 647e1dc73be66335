"""What coordinators of groups and of transactional ids share."""
