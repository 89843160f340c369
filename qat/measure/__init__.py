"""What training costs: memory and time, beside float training and other frameworks."""
